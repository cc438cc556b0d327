//! The floors of the workspace: a crate uses crates of its own and of lower floors only.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

#[test]
fn no_crate_uses_one_of_a_higher_floor() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut floors = BTreeMap::new();
    let mut manifests = Vec::new();
    for floor in fs::read_dir(crates).unwrap().map(Result::unwrap) {
        let level = floor.file_name().into_string().unwrap();
        for package in fs::read_dir(floor.path()).unwrap().map(Result::unwrap) {
            let name = package.file_name().into_string().unwrap();
            manifests.push((
                name.clone(),
                fs::read_to_string(package.path().join("Cargo.toml")).unwrap(),
            ));
            floors.insert(name, level.clone());
        }
    }
    assert!(floors.len() > 20, "{floors:?}");
    let mut uses = 0;
    for (name, manifest) in &manifests {
        for used in manifest.lines().filter_map(|line| line.strip_prefix("dbdyno-")) {
            let used = used.split(|c: char| !c.is_alphanumeric()).next().unwrap();
            assert!(floors[used] <= floors[name], "{name} uses {used} of a higher floor");
            uses += 1;
        }
    }
    assert!(uses > 80, "{uses}");
}
