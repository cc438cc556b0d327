//! Attacks by other local users: their directories are not used.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};

use crate::common::{TestDir, call, dbdyno, finish};

#[test]
fn cache_and_journals_of_others_are_refused() {
    let test = TestDir::new();
    let open = test.path().join("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
    let refused = |what: &str| {
        let mut list = dbdyno();
        list.args(["builds", "list"]).env("XDG_CACHE_HOME", &open);
        let finished = finish(list);
        finished.assert_code(2);
        assert!(finished.err.contains(what), "{finished:?}");
        let state = open.join("journals");
        let args = ["live", "status", "--state", state.to_str().unwrap()];
        let finished = call(args);
        assert!(finished.err.contains(what) && finished.code != Some(0), "{finished:?}");
        assert_eq!(fs::read_dir(&open).unwrap().count(), 0);
    };
    refused("has mode 0777");
    fs::set_permissions(&open, fs::Permissions::from_mode(0o755)).unwrap();
    if chown(&open, Some(65534), None).is_ok() {
        refused("belongs to user 65534");
        chown(&open, Some(0), None).unwrap();
    } else {
        dbdyno_fuzz::skip("only root can give a directory to another user");
    }
}
