//! A SQLite database in this process, for measuring the hot loop.

use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use dbdyno_builds::{Builder, CacheDir, Compiler, Request, Source, Variant};
use dbdyno_drivers::sqlite::SqliteConnection;
use dbdyno_drivers::{Connection, Params};
use dbdyno_engines::sqlite::{Settings, Sqlite};
use dbdyno_engines::{Engine, Table};
use dbdyno_units::Bytes;
use dbdyno_workloads::rows::{Row, Rows};
use dbdyno_workloads::schema::{index_name, table_name};

/// The bundled SQLite as a release build (`rel_o2`), from the cache if it is there.
///
/// # Errors
/// There is no cache directory, or the build fails.
pub fn build_sqlite(compiler: &Compiler) -> anyhow::Result<PathBuf> {
    let request =
        Request::new(Source::bundled_sqlite(), Variant::by_name("rel_o2")?, compiler.clone());
    let builds = Builder::new(CacheDir::chosen_or_default(None)?).build(&[request], &|_| {});
    let build = builds.into_iter().next().context("the builder returned no build")??;
    Ok(build.artifact)
}

/// Loads a table of `rows` rows into a new file in `directory`, settles and warms it, and returns
/// the open connection.
///
/// # Errors
/// SQLite cannot be loaded, or a statement fails.
pub fn load(
    library: &Path,
    directory: &Path,
    seed: u64,
    rows: u64,
) -> anyhow::Result<SqliteConnection> {
    // The defaults of an experiment: all data in memory, no waiting for storage.
    let settings = Settings {
        page_size: Bytes::from_kib(4),
        cache_size: Bytes::from_mib(256),
        journal_mode: "wal".to_owned(),
        synchronous: "off".to_owned(),
    };
    let failed = |error: dbdyno_drivers::Error| anyhow!("{error}");
    let engine = Sqlite::new(library, settings, &Sqlite::file_in(directory)).map_err(failed)?;
    let mut connection = engine.connect().map_err(failed)?;
    let table = Table { name: table_name(0), index: index_name(0) };
    let mut all = Rows::of_table(seed, 0, rows);
    let mut row = Row::default();
    let mut next = |params: &mut Params| {
        let more = all.next_into(&mut row);
        if more {
            params.push_int(row.k);
            params.push_text(&row.c);
            params.push_text(&row.pad);
        }
        more
    };
    engine.load_table(&mut connection, &table, &mut next).map_err(failed)?;
    connection.close_statements();
    engine.settle(&mut connection).map_err(failed)?;
    engine.warm(&mut connection, &[table]).map_err(failed)?;
    Ok(connection)
}
