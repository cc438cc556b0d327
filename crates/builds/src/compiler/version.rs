use super::CompilerKind;

/// The arguments that make a compiler print the macros it defines by itself. They state family
/// and number in a fixed form, whereas the text of `--version` differs between packagers and
/// looks like that of any other program.
pub(super) const PRINT_MACROS: [&str; 5] = ["-dM", "-E", "-x", "c", "/dev/null"];

/// Family and number, from those macros; `None` if they are no C compiler's.
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
    // clang defines gcc's macros too, with the version that it is compatible to.
    let clang = number(["__clang_major__", "__clang_minor__", "__clang_patchlevel__"]);
    let gcc = || number(["__GNUC__", "__GNUC_MINOR__", "__GNUC_PATCHLEVEL__"]);
    clang
        .map(|version| (CompilerKind::Clang, version))
        .or_else(|| gcc().map(|version| (CompilerKind::Gcc, version)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GCC: &str = "#define __SSP_STRONG__ 3\n#define __GNUC_MINOR__ 2\n#define __GNUC__ 12\n\
                       #define __GNUC_PATCHLEVEL__ 0\n";

    #[test]
    fn reads_gcc() {
        assert_eq!(parse(GCC), Some((CompilerKind::Gcc, "12.2.0".to_owned())));
    }

    #[test]
    fn clang_is_not_taken_for_the_gcc_that_it_imitates() {
        let clang = "#define __GNUC_MINOR__ 2\n#define __GNUC_PATCHLEVEL__ 1\n#define __GNUC__ 4\n\
                     #define __clang_major__ 14\n#define __clang_minor__ 0\n\
                     #define __clang_patchlevel__ 6\n";
        assert_eq!(parse(clang), Some((CompilerKind::Clang, "14.0.6".to_owned())));
    }

    #[test]
    fn knows_no_others() {
        assert_eq!(parse(""), None);
        assert_eq!(parse("-dM -E -x c /dev/null"), None);
        assert_eq!(parse("#define __GNUC__ 12\n"), None);
    }
}
