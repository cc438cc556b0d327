use std::path::{Component, Path, PathBuf};

/// Removes `.` and `..` from a path lexically, without resolving symbolic links.
pub(crate) fn clean(path: &Path) -> PathBuf {
    let mut clean = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => match clean.components().next_back() {
                Some(Component::Normal(_)) => {
                    clean.pop();
                }
                // The parent of the root is the root.
                Some(Component::RootDir) => {}
                _ => clean.push(".."),
            },
            part => clean.push(part),
        }
    }
    clean
}

/// Whether a source file is assembly language, by its suffix.
pub(crate) fn is_assembly(source: &Path) -> bool {
    source
        .extension()
        .is_some_and(|suffix| ["s", "S", "sx", "asm"].iter().any(|assembly| suffix == *assembly))
}

/// The directory of the build that an object belongs to, without the subdirectories that build
/// tools add for objects (`CMakeFiles/x.dir`, `x.p`, `.libs`).
pub(crate) fn component(object: &Path) -> String {
    let mut component = PathBuf::new();
    let directory = object.parent().unwrap_or(Path::new(""));
    for part in directory.components() {
        let name = part.as_os_str().to_string_lossy();
        if name == "CMakeFiles" || name == ".libs" || name.ends_with(".p") {
            break;
        }
        component.push(part);
    }
    match component.to_string_lossy() {
        name if name.is_empty() => ".".to_owned(),
        name => name.into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_cleaned() {
        let of = |path: &str| clean(Path::new(path)).display().to_string();
        assert_eq!(of("/a/./b/../c.c"), "/a/c.c");
        assert_eq!(of("../x/../y.c"), "../y.c");
        assert_eq!(of("/../x"), "/x");
    }

    #[test]
    fn components_are_directories_of_the_build() {
        let of = |path: &str| component(Path::new(path));
        assert_eq!(
            of("storage/innobase/CMakeFiles/innobase.dir/btr/btr0btr.cc.o"),
            "storage/innobase"
        );
        assert_eq!(of("src/backend/access/heap/heapam.o"), "src/backend/access/heap");
        assert_eq!(of("src/port/libpgport.a.p/path.c.o"), "src/port");
        assert_eq!(of("src/.libs/x.o"), "src");
        assert_eq!(of("x.o"), ".");
    }
}
