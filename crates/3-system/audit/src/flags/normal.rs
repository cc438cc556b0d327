/// Options with their value in the next word, which vary between files or directories but do not
/// affect the code.
const PLACES_APART: [&str; 22] = [
    "-o",
    "-I",
    "-L",
    "-MF",
    "-MT",
    "-MQ",
    "-MJ",
    "-isystem",
    "-iquote",
    "-idirafter",
    "-include",
    "-imacros",
    "-isysroot",
    "-B",
    "-dumpdir",
    "-dumpbase",
    "-dumpbase-ext",
    "-auxbase-strip",
    "-imultiarch",
    "-working-directory",
    "-resource-dir",
    "-imultilib",
];

/// Options that contain such a value, or select the compilation step.
const PLACES_TOGETHER: [&str; 12] = [
    "-I",
    "-L",
    "-o",
    "-MF",
    "-MT",
    "-MQ",
    "-isystem",
    "-iquote",
    "-idirafter",
    "--sysroot=",
    "-B",
    "-resource-dir=",
];

/// Options that affect only files and messages.
const SILENT: [&str; 13] = [
    "-c",
    "-S",
    "-E",
    "-MD",
    "-MMD",
    "-MP",
    "-MG",
    "-M",
    "-MM",
    "-pipe",
    "-v",
    "-###",
    "-save-temps",
];

/// Options with their value in the next word, to be joined with it.
const JOINED: [&str; 9] =
    ["-D", "-U", "-x", "-Xclang", "-mllvm", "--param", "-arch", "-target", "-std"];

/// Options whose value is a path or seed of this build.
const MAPS: [&str; 5] = [
    "-ffile-prefix-map=",
    "-fdebug-prefix-map=",
    "-fmacro-prefix-map=",
    "-frandom-seed=",
    "-fprofile-prefix-map=",
];

/// Normalizes a command line: keeps flags that affect the code, without file names and duplicates,
/// each with its value in one word. Of duplicates, the last one is kept, since later flags override
/// earlier ones.
pub(crate) fn normal(flags: &[String]) -> Vec<String> {
    let mut kept: Vec<String> = Vec::with_capacity(flags.len());
    let mut words = flags.iter();
    while let Some(word) = words.next() {
        if PLACES_APART.contains(&word.as_str()) {
            words.next();
        } else if JOINED.contains(&word.as_str()) {
            let value = words.next().map_or("", String::as_str);
            kept.push(match word.as_str() {
                "-D" | "-U" => format!("{word}{value}"),
                "-x" | "-Xclang" | "-mllvm" | "-arch" | "-target" => format!("{word} {value}"),
                _ => format!("{word}={value}"),
            });
        } else if let Some(map) = MAPS.iter().find(|map| word.starts_with(**map)) {
            kept.push(format!("{map}…"));
        } else if word.starts_with('-') && !is_silent(word) {
            kept.push(word.clone());
        }
    }
    let mut unique: Vec<String> = Vec::with_capacity(kept.len());
    for word in kept.into_iter().rev() {
        if !unique.contains(&word) {
            unique.push(word);
        }
    }
    unique.reverse();
    unique
}

fn is_silent(word: &str) -> bool {
    SILENT.contains(&word)
        || word == "-"
        || PLACES_TOGETHER.iter().any(|place| word.starts_with(place))
        || word.starts_with("-fdiagnostics-")
        || word.starts_with("-Wp,-M")
}

/// Whether [`super::interpret`] reads this flag; other flags are displayed unchanged.
pub(crate) fn has_meaning(flag: &str) -> bool {
    let prefixes = [
        "-O",
        "-g",
        "-flto",
        "-fno-lto",
        "-march=",
        "-mtune=",
        "-mcpu=",
        "-fomit-frame-pointer",
        "-fno-omit-frame-pointer",
        "-fstack-protector",
        "-fno-stack-protector",
        "-fPIC",
        "-fpic",
        "-fPIE",
        "-fpie",
        "-fno-pi",
        "-fno-PI",
        "-fprofile-",
        "-fauto-profile",
        "-fstack-clash",
        "-fno-stack-clash",
        "-fcf-protection",
        "-mbranch-protection",
        "-DNDEBUG",
        "-UNDEBUG",
        "-D_FORTIFY_SOURCE",
        "-U_FORTIFY_SOURCE",
        "-fltrans",
        "-ffat-lto",
        "-fno-fat-lto",
    ];
    let has_meaning = |flag: &str| prefixes.iter().any(|prefix| flag.starts_with(prefix));
    match flag.strip_prefix("-Wp,") {
        Some(options) => options.split(',').any(has_meaning),
        None => has_meaning(flag),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> String {
        let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
        normal(&words).join(" ")
    }

    #[test]
    fn file_names_are_removed() {
        assert_eq!(
            of("-O2 -I/a -I b -MD -MT x.o -MF x.d -o x.o -c a.c -isystem /y -pipe -fPIC"),
            "-O2 -fPIC"
        );
        assert_eq!(of("-O2 -o"), "-O2");
    }

    #[test]
    fn values_are_joined_and_paths_masked() {
        assert_eq!(of("-D X=1 --param a=1 -DY -U Z"), "-DX=1 --param=a=1 -DY -UZ");
        assert_eq!(of("-ffile-prefix-map=/build=."), "-ffile-prefix-map=…");
    }

    #[test]
    fn last_duplicate_is_kept() {
        assert_eq!(of("-O2 -g -O3 -O2 -g"), "-O3 -O2 -g");
    }
}
