use std::os::unix::fs::PermissionsExt;

use dbdyno_engines::SchemaRemoval;
use dbdyno_engines::server::{ServerDir, ServerDirs, ServerPlan, initialise};
use dbdyno_types::{RunId, RunIdentity};
use tempfile::TempDir;

use crate::shared::Shared;

/// A run with this id, in the directory `/runs/ID`.
pub fn run(id: u8) -> RunIdentity {
    RunIdentity::new(RunId::from_random([id; 16]), "host", &format!("/runs/{id}"))
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
