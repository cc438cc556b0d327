//! Static archives.

use dbdyno_audit::{Check, Optimization, binary};

use crate::lab::{Lab, expected, object, violations};

#[test]
fn archive_members_are_read_and_named() {
    let lab = Lab::new();
    lab.object("gcc", "-g -O3", "one.o");
    lab.object("gcc", "-g -O1", "a-member-with-a-very-long-name.o");
    lab.run("ar", "rcs libx.a one.o a-member-with-a-very-long-name.o");
    let archive = lab.path().join("libx.a");
    let audit = binary(&archive, None, &expected(&["optimization=O3"])).unwrap();
    assert_eq!(audit.objects.len(), 2);
    let wrong = "libx.a(a-member-with-a-very-long-name.o)";
    assert_eq!(violations(&audit), [(Check::OptimizationLevel, wrong.to_owned())]);
    assert_eq!(object(&audit, "libx.a(one.o)").effective.optimization, Some(Optimization::O3));
}

#[test]
fn archive_member_that_is_also_an_object_counts_once() {
    let lab = Lab::new();
    lab.object("gcc", "-g -O3", "one.o");
    lab.object("gcc", "-g -O2 -fPIC", "two.o");
    lab.run("ar", "rcs libx.a one.o two.o");
    std::fs::remove_file(lab.path().join("two.o")).unwrap();
    let audit = lab.audit(&[]);
    let names: Vec<String> = audit.objects.iter().map(|object| object.name()).collect();
    assert_eq!(names, ["libx.a(two.o)", "one.o"]);
}

#[test]
fn thin_archive_members_are_not_counted_twice() {
    let lab = Lab::new();
    lab.object("gcc", "-g -O3", "one.o");
    lab.run("ar", "rcsT libx.a one.o");
    assert_eq!(lab.audit(&[]).objects.len(), 1);
}

#[test]
fn archive_member_with_the_name_and_size_of_another_object_is_kept() {
    let lab = Lab::new();
    lab.write("a.c", "int f(int x) { return x + 1; }\n");
    let size = |object: &str| std::fs::metadata(lab.path().join(object)).unwrap().len();
    lab.object("gcc", "-g -O2", "one.o");
    lab.run("ar", "rcs libx.a one.o");
    let of_member = size("one.o");
    lab.object("gcc", "-g -O3", "one.o");
    assert_eq!(size("one.o"), of_member);
    let audit = lab.audit(&["optimization=O3"]);
    let wrong = "libx.a(one.o)";
    assert_eq!(violations(&audit), [(Check::OptimizationLevel, wrong.to_owned())]);
}

/// Paths of more than 4096 bytes cannot be opened.
#[test]
fn directory_that_cannot_be_read_is_listed() {
    let lab = Lab::new();
    lab.object("gcc", "-g -O3", "one.o");
    // It creates them one by one, from inside of each.
    lab.run("mkdir", &format!("-p {}", vec!["d".repeat(200); 25].join("/")));
    let audit = lab.audit(&[]);
    assert_eq!(audit.objects.len(), 1);
    assert_eq!(audit.unreadable.len(), 1, "{:?}", audit.unreadable);
    assert!(audit.unreadable[0].reason.contains("name too long"), "{:?}", audit.unreadable);
}
