//! The identity of a run, when its directory is moved or copied.

use std::fs;
use std::path::Path;

use dbdyno_results::{RunReader, RunWriter};
use dbdyno_types::RunIdentity;
use rusqlite::Connection;

use crate::run_directory::{lab, new_run};

fn identity(directory: &Path) -> RunIdentity {
    let writer = RunWriter::resume(directory).unwrap();
    let stored = writer.reader().unwrap().identity().unwrap();
    assert_eq!(stored.as_ref(), Some(writer.identity()));
    writer.identity().clone()
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    fs::copy(from.join("run.sqlite"), to.join("run.sqlite")).unwrap();
}

#[test]
fn every_run_has_an_id_and_keeps_it() {
    let dir = lab();
    let (first, second) = (dir.path().join("first"), dir.path().join("second"));
    let made = RunWriter::create(&first, &new_run()).unwrap().identity().clone();
    assert_eq!(made.directory(), first.canonicalize().unwrap());
    assert_eq!(identity(&first), made);
    drop(RunWriter::create(&second, &new_run()).unwrap());
    assert_ne!(identity(&second).id, made.id);
}

#[test]
fn moved_run_keeps_its_id() {
    let dir = lab();
    let (first, moved) = (dir.path().join("first"), dir.path().join("moved"));
    let made = RunWriter::create(&first, &new_run()).unwrap().identity().clone();
    fs::rename(&first, &moved).unwrap();
    let now = identity(&moved);
    assert_eq!(now.id, made.id);
    assert_eq!(now.directory(), moved.canonicalize().unwrap());
    // Another run where it was.
    drop(RunWriter::create(&first, &new_run()).unwrap());
    assert_eq!(identity(&moved).id, made.id);
}

#[test]
fn copied_run_gets_another_id() {
    let dir = lab();
    let (first, second) = (dir.path().join("first"), dir.path().join("second"));
    let made = RunWriter::create(&first, &new_run()).unwrap().identity().clone();
    copy(&first, &second);
    let copied = identity(&second);
    assert_ne!(copied.id, made.id);
    assert_eq!((identity(&second), identity(&first)), (copied, made));
}

#[test]
fn copy_of_an_unreadable_run_gets_another_id() {
    let dir = lab();
    let (first, second) = (dir.path().join("first"), dir.path().join("second"));
    let made = RunWriter::create(&first, &new_run()).unwrap().identity().clone();
    copy(&first, &second);
    fs::write(first.join("run.sqlite"), "damaged").unwrap();
    assert_ne!(identity(&second).id, made.id);
}

#[test]
fn run_without_an_id_gets_one_when_it_is_resumed() {
    let dir = lab();
    drop(RunWriter::create(dir.path(), &new_run()).unwrap());
    let database = Connection::open(dir.path().join("run.sqlite")).unwrap();
    database.execute("DELETE FROM meta WHERE key = 'identity'", []).unwrap();
    drop(database);
    assert_eq!(RunReader::open(dir.path()).unwrap().identity().unwrap(), None);
    assert_eq!(identity(dir.path()), identity(dir.path()));
}
