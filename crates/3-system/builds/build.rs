//! Embeds the compressed SQLite amalgamation into the library.
//!
//! The source is part of `libsqlite3-sys`, whose build script passes its path to direct dependants.
//! dbdyno can thus compile SQLite without a download and without any additional file.

use std::env;
use std::error::Error;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::ZlibEncoder;
use sha2::{Digest, Sha256};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=DEP_SQLITE3_INCLUDE");
    let include = env::var_os("DEP_SQLITE3_INCLUDE").ok_or(
        "libsqlite3-sys did not say where its sqlite3.c is (DEP_SQLITE3_INCLUDE). It only does \
         with its feature `bundled`, and not while LIBSQLITE3_SYS_USE_PKG_CONFIG is set: unset \
         that variable.",
    )?;
    let include = PathBuf::from(include);
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);

    for (name, variable) in [("sqlite3.c", "SQLITE3_C"), ("sqlite3.h", "SQLITE3_H")] {
        let text = read(&include.join(name))?;
        println!("cargo::rustc-env=DBDYNO_{variable}_SHA256={}", hex_sha256(&text));
        if name == "sqlite3.c" {
            println!("cargo::rustc-env=DBDYNO_SQLITE_VERSION={}", version(&text)?);
        }
        let mut packed =
            ZlibEncoder::new(File::create(out.join(format!("{name}.zlib")))?, Compression::best());
        packed.write_all(&text)?;
        packed.finish()?;
    }
    Ok(())
}

fn read(path: &Path) -> Result<Vec<u8>, Box<dyn Error>> {
    println!("cargo::rerun-if-changed={}", path.display());
    fs::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()).into())
}

fn hex_sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Parses the version in `#define SQLITE_VERSION "3.50.4"`.
fn version(text: &[u8]) -> Result<String, Box<dyn Error>> {
    String::from_utf8_lossy(text)
        .lines()
        .filter_map(|line| line.strip_prefix("#define SQLITE_VERSION "))
        .find_map(|rest| Some(rest.trim().strip_prefix('"')?.strip_suffix('"')?.to_owned()))
        .ok_or_else(|| "sqlite3.c has no line `#define SQLITE_VERSION \"…\"`".into())
}
