//! Debug information: names of functions, and which were inlined at an address.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use addr2line::Loader;
use object::{File, Object};

/// Where distributions install the debug information that they split from programs.
const SPLIT: &str = "/usr/lib/debug/.build-id";

/// A function at an address, by debug information.
pub(crate) struct Named {
    /// As in a symbol table.
    pub symbol: String,
    /// The name of the file with its code there.
    pub source: Option<String>,
}

/// The debug information of a file. It is read where functions are looked up.
pub(crate) struct DebugInfo(Loader);

impl DebugInfo {
    /// `None` if a file, which is at this path, has none.
    pub fn read(file: &File<'_>, path: &Path) -> Option<Self> {
        file.section_by_name(".debug_info")?;
        // What several files have in common is in another one.
        let common = file.gnu_debugaltlink().ok().flatten().and_then(|(name, _)| {
            Some(fs::canonicalize(path).ok()?.parent()?.join(OsStr::from_bytes(name)))
        });
        let loader = Loader::new_with_sup(path, common.as_deref());
        loader.or_else(|_| Loader::new(path)).ok().map(Self)
    }

    /// The functions at an address as stated in the file: inlined ones, the innermost first, and at last the one that
    /// has their code. None if it is not known.
    pub fn functions(&self, address: u64) -> Vec<Named> {
        let mut found = Vec::new();
        let Ok(mut frames) = self.0.find_frames(address) else { return found };
        while let Ok(Some(frame)) = frames.next() {
            let name =
                frame.function.as_ref().and_then(|one| Some(one.raw_name().ok()?.into_owned()));
            let Some(symbol) = name else { continue };
            let file = frame.location.as_ref().and_then(|one| one.file);
            let source = file.and_then(|path| path.rsplit('/').next()).map(str::to_owned);
            found.push(Named { symbol, source });
        }
        found
    }
}

/// Where the debug information of a build is, if it was split from the program and is installed.
pub(crate) fn split_file(build: &str) -> Option<PathBuf> {
    let (directory, name) = build.split_at_checked(2)?;
    let path = Path::new(SPLIT).join(directory).join(format!("{name}.debug"));
    path.is_file().then_some(path)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use object::ObjectSymbol;

    use super::*;

    /// A library with debug information; `None` without a compiler.
    fn library(directory: &Path) -> Option<PathBuf> {
        let [source, library] = ["sum.c", "libsum.so"].map(|name| directory.join(name));
        fs::write(&source, SOURCE).unwrap();
        let arguments = ["-g", "-O1", "-shared", "-fPIC", "-o"];
        let built = Command::new("gcc").args(arguments).args([&library, &source]).status();
        built.is_ok_and(|status| status.success()).then_some(library)
    }

    const SOURCE: &str = "
        static inline __attribute__((always_inline)) int twice(int n) { return n * 2 + (n ^ 77); }
        int sum(int n) { return twice(n) + 5; }
    ";

    #[test]
    fn inlined_functions_come_before_the_one_that_has_their_code() {
        let directory = tempfile::tempdir().unwrap();
        let Some(library) = library(directory.path()) else {
            return dbdyno_fuzz::skip("gcc is missing");
        };
        let data = fs::read(&library).unwrap();
        let file = File::parse(&*data).unwrap();
        let debug = DebugInfo::read(&file, &library).unwrap();
        let sum = file.symbols().find(|symbol| symbol.name() == Ok("sum")).unwrap();
        let at = |address: u64| -> Vec<(String, Option<String>)> {
            debug.functions(address).into_iter().map(|one| (one.symbol, one.source)).collect()
        };
        let all: Vec<_> = (sum.address()..sum.address() + sum.size()).map(at).collect();
        let of = |name: &str| (name.to_owned(), Some("sum.c".to_owned()));
        assert!(all.contains(&vec![of("twice"), of("sum")]), "{all:?}");
        assert!(debug.functions(1).is_empty());
    }

    #[test]
    fn damaged_debug_information_is_read_or_refused() {
        let directory = tempfile::tempdir().unwrap();
        let Some(library) = library(directory.path()) else {
            return dbdyno_fuzz::skip("gcc is missing");
        };
        let data = fs::read(&library).unwrap();
        dbdyno_fuzz::Fuzz::new(vec![data]).cases(128).run(|data| {
            fs::write(&library, data).unwrap();
            let Ok(file) = File::parse(data) else { return };
            let Some(debug) = DebugInfo::read(&file, &library) else { return };
            for address in (0x1000..0x1200).step_by(8) {
                let _ = debug.functions(address);
            }
        });
    }
}
