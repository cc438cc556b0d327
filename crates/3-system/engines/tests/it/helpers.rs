use std::os::unix::fs::PermissionsExt;
use std::thread;

use dbdyno_drivers::Connection;
use dbdyno_engines::server::{ServerDir, ServerDirs, ServerPlan, initialise};
use dbdyno_engines::{Engine, SchemaRemoval};
use dbdyno_types::{RunId, RunIdentity};
use tempfile::TempDir;

use crate::shared::Shared;

/// A run with this id, in the directory `/runs/ID`.
pub fn run(id: u8) -> RunIdentity {
    RunIdentity::new(RunId::from_random([id; 16]), "host", &format!("/runs/{id}"))
}

/// Checks that a statement of a worker that is gone ends with the tables of its run.
pub fn check_left_statement_ends<E: Engine>(ours: &E, endless: &'static str) {
    ours.create_schema().unwrap();
    let mut left = ours.connect().unwrap();
    let statement = thread::spawn(move || left.run(endless));
    // The server may not yet execute it the first time.
    while !statement.is_finished() {
        assert_eq!(ours.drop_schema().unwrap(), SchemaRemoval::Dropped);
        ours.create_schema().unwrap();
    }
    assert!(statement.join().unwrap().is_err());
    ours.drop_schema().unwrap();
}

/// Why the schema was left alone.
#[track_caller]
pub fn reason(removal: SchemaRemoval) -> String {
    match removal {
        SchemaRemoval::LeftAlone(reason) => reason,
        other => panic!("{other:?}"),
    }
}

/// A new data directory, to be cloned by tests.
pub struct Template {
    server_dirs: Option<ServerDirs>,
    _directory: TempDir,
}

impl Template {
    fn create(plan: &ServerPlan) -> Self {
        let open = std::fs::Permissions::from_mode(0o711);
        let directory = tempfile::Builder::new().permissions(open).tempdir().unwrap();
        let server_dirs = ServerDirs::open(directory.path()).unwrap();
        initialise(plan, &server_dirs.server_dir("template")).unwrap();
        Self { server_dirs: Some(server_dirs), _directory: directory }
    }
}

impl Drop for Template {
    fn drop(&mut self) {
        if let Some(server_dirs) = self.server_dirs.take() {
            server_dirs.remove().unwrap();
        }
    }
}

/// Gives `to` a copy of the data in the template, which is created with `plan` by the first test.
pub fn clone_template(template: &'static Shared<Template>, plan: &ServerPlan, to: &ServerDir) {
    let plan = plan.clone();
    let template = template.get(move || Template::create(&plan));
    template.server_dirs.as_ref().unwrap().server_dir("template").clone_to(to).unwrap();
}
