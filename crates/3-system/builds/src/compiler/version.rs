use super::CompilerKind;

/// Arguments to print the predefined macros. They contain family and version in a fixed format,
/// whereas the output of `--version` differs between distributions and is similar to that of other
/// programs.
pub(super) const PRINT_MACROS: [&str; 5] = ["-dM", "-E", "-x", "c", "/dev/null"];

/// Parses family and version from those macros; `None` if they are not those of a C compiler.
pub(super) fn parse(macros: &str) -> Option<(CompilerKind, String)> {
    let value = |name: &str| {
        macros.lines().find_map(|line| {
            let (found, value) = line.strip_prefix("#define ")?.split_once(' ')?;
            (found == name).then(|| value.trim().to_owned())
        })
    };
    let number = |names: [&str; 3]| {
        let [major, minor, patch] = names.map(value);
        Some(format!("{}.{}.{}", major?, minor?, patch?))
    };
    // clang also defines gcc's macros, with the version that it is compatible with.
    let clang = number(["__clang_major__", "__clang_minor__", "__clang_patchlevel__"]);
    let gcc = || number(["__GNUC__", "__GNUC_MINOR__", "__GNUC_PATCHLEVEL__"]);
    clang
        .map(|version| (CompilerKind::Clang, version))
        .or_else(|| gcc().map(|version| (CompilerKind::Gcc, version)))
}

#[cfg(test)]
mod tests {
    use dbdyno_fuzz::Fuzz;

    use super::*;

    const GCC: &str = "#define __SSP_STRONG__ 3\n#define __GNUC_MINOR__ 2\n#define __GNUC__ 12\n\
                       #define __GNUC_PATCHLEVEL__ 0\n";

    #[test]
    fn gcc_version_is_parsed() {
        assert_eq!(parse(GCC), Some((CompilerKind::Gcc, "12.2.0".to_owned())));
    }

    #[test]
    fn damaged_macros_are_read_or_refused() {
        Fuzz::new(vec![GCC.into()]).words(&["#define __GNUC__ ", "__clang_major__", "\n"]).run(
            |macros| {
                let _ = parse(&String::from_utf8_lossy(macros));
            },
        );
    }

    #[test]
    fn clang_is_distinguished_from_gcc() {
        let clang = "#define __GNUC_MINOR__ 2\n#define __GNUC_PATCHLEVEL__ 1\n#define __GNUC__ 4\n\
                     #define __clang_major__ 14\n#define __clang_minor__ 0\n\
                     #define __clang_patchlevel__ 6\n";
        assert_eq!(parse(clang), Some((CompilerKind::Clang, "14.0.6".to_owned())));
    }

    #[test]
    fn other_output_is_rejected() {
        assert_eq!(parse(""), None);
        assert_eq!(parse("-dM -E -x c /dev/null"), None);
        assert_eq!(parse("#define __GNUC__ 12\n"), None);
    }
}
