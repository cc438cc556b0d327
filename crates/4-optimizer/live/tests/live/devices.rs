//! Code that is not in a regular file.

use std::path::Path;

use dbdyno_live::Module;

use crate::copies::attach;
use crate::victim::Program;

#[test]
fn code_mapped_from_a_device_is_not_read() {
    let program = Program::compile("zero.c", "gcc", &["-O1"]);
    let victim = program.start();
    let attachment = attach(&program, &victim);
    let maps = attachment.process().maps().unwrap();
    let loaded = Module::loaded(&maps);
    let device = loaded.iter().find(|it| it.path == Path::new("/dev/zero")).unwrap();
    // Reading it would never end.
    let error = Module::open(attachment.process(), device).unwrap_err().to_string();
    assert!(error.contains("regular file"), "{error}");
}
