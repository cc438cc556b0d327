//! Names of functions as people write them.

use std::collections::{HashMap, HashSet};

use cpp_demangle::{DemangleOptions, Symbol};
use dbdyno_types::profile::{BETWEEN, Frame, Function, ModuleBuild, Profile};
use dbdyno_units::LimitedText;

use crate::kernel::KERNEL;
use crate::stacks::ANONYMOUS;

/// What compilers append to names of copies and parts of functions.
const CLONES: [&str; 9] = [
    ".isra.",
    ".constprop.",
    ".part.",
    ".cold",
    ".warm",
    ".lto_priv.",
    ".localalias",
    ".llvm.",
    ".__uniq.",
];

/// The end of names of code that only jumps to a function of another file.
pub(crate) const STUB: &str = "@plt";

/// The name of a function in its language, without arguments and without what compilers append to copies.
pub fn demangled(symbol: &str) -> String {
    match symbol.strip_suffix(STUB) {
        Some(symbol) => name_of(symbol) + STUB,
        None => name_of(symbol),
    }
}

fn name_of(symbol: &str) -> String {
    let end = CLONES.iter().filter_map(|clone| symbol.find(clone)).min().unwrap_or(symbol.len());
    let symbol = &symbol[..end];
    if let Ok(name) = rustc_demangle::try_demangle(symbol) {
        return format!("{name:#}");
    }
    let options = DemangleOptions::new().no_params().no_return_type();
    let parsed = symbol.starts_with("_Z").then(|| Symbol::new(symbol).ok()).flatten();
    let mut name = LimitedText::default();
    match parsed.map(|parsed| parsed.structured_demangle(&mut name, &options)) {
        Some(Ok(())) => name.0,
        _ => symbol.to_owned(),
    }
}

/// The stacks of a profile with the titles by which they are compared.
#[derive(Debug, Default)]
pub struct TitledStacks {
    /// No two are equal.
    pub titles: Vec<String>,
    /// The titles of the frames of each stack, in the order of the profile and as there, the innermost first.
    pub stacks: Vec<Vec<Frame>>,
}

impl TitledStacks {
    fn number(&mut self, known: &mut HashMap<String, Frame>, title: String) -> Frame {
        *known.entry(title).or_insert_with_key(|title| {
            self.titles.push(title.clone());
            self.titles.len() as Frame - 1
        })
    }
}

/// How functions are called where profiles are compared: equal titles are one function.
#[derive(Debug)]
pub struct Titles {
    /// Files of which all profiles have the same build. An address in them is the same function in all.
    same_build: HashSet<String>,
}

impl Titles {
    /// For a comparison of these profiles.
    pub fn of<'a>(profiles: impl IntoIterator<Item = &'a Profile>) -> Self {
        let mut builds: HashMap<&str, HashSet<&str>> = HashMap::new();
        for ModuleBuild { module, build } in profiles.into_iter().flat_map(|one| &one.modules) {
            builds.entry(module).or_default().insert(build);
        }
        let same = builds.into_iter().filter(|(_, builds)| builds.len() == 1);
        Self { same_build: same.map(|(module, _)| module.to_owned()).collect() }
    }

    /// The stacks of a consistent profile. A function that nothing tells apart in another build is named by its nearest
    /// caller that has a name or a source file, so that it is compared with what is there below the same caller.
    pub fn stacks(&self, profile: &Profile) -> TitledStacks {
        let Profile { functions, stacks, .. } = profile;
        let (mut all, mut known) = (TitledStacks::default(), HashMap::new());
        let own: Vec<Option<Frame>> = functions
            .iter()
            .map(|one| self.is_told_apart(one).then(|| all.number(&mut known, self.title(one))))
            .collect();
        let mut below: HashMap<(Frame, Option<Frame>), Frame> = HashMap::new();
        for stack in stacks {
            let mut caller = None;
            let mut titled = Vec::with_capacity(stack.frames.len());
            for frame in stack.frames.iter().rev() {
                let function = &functions[*frame as usize];
                let number = own[*frame as usize].unwrap_or_else(|| {
                    *below.entry((*frame, caller)).or_insert_with(|| {
                        let title = match caller {
                            Some(caller) => below_caller(&all.titles[caller as usize]),
                            None => self.title(function),
                        };
                        all.number(&mut known, title)
                    })
                });
                if function.name.is_some() || has_source_file(function) {
                    caller = Some(number);
                }
                titled.push(number);
            }
            titled.reverse();
            all.stacks.push(titled);
        }
        all
    }

    /// Whether the title of a function is its own, or that of its source file, in all builds that are compared.
    fn is_told_apart(&self, function: &Function) -> bool {
        let Function { module, name, .. } = function;
        let is_in_file = module != KERNEL && module != ANONYMOUS;
        name.is_some()
            || has_source_file(function)
            || !is_in_file
            || self.same_build.contains(module)
    }

    /// The name of a function, with arguments of templates as `<…>`. One without a name is called by its source file or
    /// its module, and by its address if that tells something; else it is one with all others of that file.
    pub fn title(&self, function: &Function) -> String {
        let Function { module, name, source, start } = function;
        match name {
            Some(name) if module == KERNEL => return format!("{} [kernel]", folded(name)),
            Some(name) => return folded(of_c_library(name)),
            None if module == KERNEL => return "unnamed in the kernel".to_owned(),
            None if module == ANONYMOUS => return "code outside of files".to_owned(),
            None => {}
        }
        let ends = source.as_deref().map(|source| source.split_once(BETWEEN).ok_or(source));
        let is_known = self.same_build.contains(module);
        match ends {
            Some(Ok((first, last))) if is_known => {
                format!("between {first} and {last} +{start:#x}")
            }
            Some(Ok((first, last))) => format!("unnamed between {first} and {last}"),
            Some(Err(source)) if is_known => format!("{source}+{start:#x}"),
            Some(Err(source)) => format!("unnamed in {source}"),
            None if is_known => format!("{module}+{start:#x}"),
            None => format!("unnamed in {module}"),
        }
    }
}

/// The title of functions without a name that a function with this title calls.
fn below_caller(caller: &str) -> String {
    format!("unnamed below {}", caller.strip_prefix("unnamed in ").unwrap_or(caller))
}

/// Whether its one source file is known.
fn has_source_file(function: &Function) -> bool {
    function.source.as_deref().is_some_and(|source| !source.contains(BETWEEN))
}

/// What glibc calls the parts of the names of implementations for some processors, of which a program uses one.
const PROCESSORS: [&str; 6] = ["_avx", "_evex", "_sse", "_ssse", "_erms", "_unaligned"];

/// The name by which programs call an implementation in the C library, such as `__memcmp_evex_movbe`. It is known only
/// where the library's debug symbols are installed.
fn of_c_library(name: &str) -> &str {
    let Some(plain) = name.strip_prefix("__") else { return name };
    let end = PROCESSORS.iter().filter_map(|processor| plain.find(processor)).min();
    match end.map(|end| &plain[..end]) {
        // One implementation of both.
        Some("memmove") => "memcpy",
        Some(plain) if ["mem", "str", "wcs", "wmem"].iter().any(|of| plain.starts_with(of)) => {
            plain
        }
        _ => name,
    }
}

/// A name with `<…>` instead of arguments of templates and generic types.
fn folded(name: &str) -> String {
    let mut short = String::with_capacity(name.len());
    let mut rest = name;
    let ends = ends_of_arguments(name);
    while let Some(at) = rest.find('<') {
        short.push_str(&rest[..at]);
        rest = &rest[at..];
        let is_operator = short.ends_with("operator");
        // After a name, or after an operator and a space. Rust's `<Type as Trait>::function` begins with one.
        let of_what = short.trim_end();
        let has_arguments =
            of_what.ends_with(|sign: char| sign.is_ascii_alphanumeric() || "_])<=>".contains(sign));
        let start = name.len() - rest.len();
        let (shown, length) = match ends.get(&start).map(|end| end - start) {
            _ if is_operator => {
                let length = rest.find(|sign: char| !"<=>".contains(sign)).unwrap_or(rest.len());
                (&rest[..length], length)
            }
            Some(length) if has_arguments => ("<…>", length),
            _ => ("<", 1),
        };
        short.push_str(shown);
        rest = &rest[length..];
    }
    short + rest
}

/// Where the lists of arguments that begin at these positions of a text end; not those without an end.
fn ends_of_arguments(text: &str) -> HashMap<usize, usize> {
    let (mut open, mut ends) = (Vec::new(), HashMap::new());
    let mut before = ' ';
    for (at, sign) in text.char_indices() {
        match sign {
            '<' => open.push(at),
            '>' if before != '-' => ends.extend(open.pop().map(|start| (start, at + 1))),
            _ => {}
        }
        before = sign;
    }
    ends
}

#[cfg(test)]
mod tests {
    use dbdyno_types::profile::Stack;

    use super::*;

    #[test]
    fn implementations_for_processors_have_the_name_that_programs_use() {
        for (name, plain) in [
            ("__memcmp_evex_movbe", "memcmp"),
            ("__memmove_avx512_unaligned_erms", "memcpy"),
            ("__strlen_avx2", "strlen"),
            ("__libc_recv", "__libc_recv"),
            ("my_function_avx", "my_function_avx"),
        ] {
            assert_eq!(of_c_library(name), plain);
        }
    }

    #[test]
    fn names_have_no_arguments_and_no_clones() {
        for (symbol, name) in [
            ("_ZN7handler13ha_index_nextEPh", "handler::ha_index_next"),
            ("_ZN7handler13ha_index_nextEPh.cold", "handler::ha_index_next"),
            ("_ZN7handler13ha_index_nextEPh@plt", "handler::ha_index_next@plt"),
            ("row_search_mvcc.isra.0.part.3", "row_search_mvcc"),
            ("ExecScan.constprop.0", "ExecScan"),
            ("pagerStress.llvm.1234567", "pagerStress"),
            ("memcpy", "memcpy"),
            (
                "_ZN4core6option15Option$LT$T$GT$4take17h0123456789abcdefE",
                "core::option::Option<T>::take",
            ),
            ("_Zbroken", "_Zbroken"),
        ] {
            assert_eq!(demangled(symbol), name);
        }
    }

    #[test]
    fn arguments_of_templates_are_folded() {
        for (name, short) in [
            (
                "rocksdb::BlockIter<rocksdb::Slice>::BinarySeek<rocksdb::DecodeKey>",
                "rocksdb::BlockIter<…>::BinarySeek<…>",
            ),
            ("Bounded_queue<uchar, std::map<int, int> >::push", "Bounded_queue<…>::push"),
            ("std::operator<< <std::char_traits<char> >", "std::operator<< <…>"),
            ("Value::operator<", "Value::operator<"),
            ("Item_ptr<Item>::operator->", "Item_ptr<…>::operator->"),
            ("run<&Item::operator->, int>::go", "run<…>::go"),
            ("<alloc::vec::Vec<T> as Read>::read", "<alloc::vec::Vec<…> as Read>::read"),
            ("broken<int::go", "broken<int::go"),
            ("memcpy", "memcpy"),
        ] {
            assert_eq!(folded(name), short);
        }
    }

    /// Names are of files and runs of others.
    #[test]
    fn damaged_names_are_shown() {
        let symbols = [
            "_ZN7handler13ha_index_nextEPh.cold@plt",
            "_ZNSt6vectorIiSaIiEE9push_backERKi",
            "_ZN4core6option15Option$LT$T$GT$4take17h0123456789abcdefE",
            "std::operator<< <std::map<int, int>::operator-> >",
        ];
        let samples = symbols.map(|symbol| symbol.as_bytes().to_vec()).to_vec();
        let words = ["@plt", "_ZN", "S_", "I", "E", "<", "->", "$LT$", "18446744073709551615"];
        dbdyno_fuzz::Fuzz::new(samples).words(&words).run(|symbol| {
            let symbol = String::from_utf8_lossy(symbol);
            let _ = folded(&demangled(&symbol));
            let _ = folded(of_c_library(&symbol));
        });
    }

    #[test]
    fn long_names_take_neither_stack_nor_time() {
        for part in [STUB, "a<", "a->"] {
            let name = part.repeat(300_000);
            assert_eq!(folded(&demangled(&name)), name);
        }
        let symbol = format!("_ZN{}{}1aEv", LimitedText::LONGEST, "x".repeat(LimitedText::LONGEST));
        assert_eq!(demangled(&symbol), symbol);
    }

    #[test]
    fn functions_without_a_name_are_told_apart_in_one_build_only() {
        let profile = |build: &str| Profile {
            modules: vec![ModuleBuild { module: "mariadbd".to_owned(), build: build.to_owned() }],
            ..Profile::default()
        };
        let (one, other) = (profile("1a"), profile("2b"));
        let same = Titles::of([&one, &one]);
        let different = Titles::of([&one, &other]);
        let function = |source: Option<&str>| Function {
            module: "mariadbd".to_owned(),
            name: None,
            source: source.map(str::to_owned),
            start: 0xdc_d980,
        };
        for (source, known, unknown) in [
            (Some("row0sel.cc"), "row0sel.cc+0xdcd980", "unnamed in row0sel.cc"),
            (
                Some("row0row.cc…row0upd.cc"),
                "between row0row.cc and row0upd.cc +0xdcd980",
                "unnamed between row0row.cc and row0upd.cc",
            ),
            (None, "mariadbd+0xdcd980", "unnamed in mariadbd"),
        ] {
            assert_eq!(same.title(&function(source)), known);
            assert_eq!(different.title(&function(source)), unknown);
        }
    }

    #[test]
    fn function_without_a_name_is_below_its_nearest_known_caller_in_another_build() {
        let profile = |build: &str, start: u64| {
            let function = |name: Option<&str>, source: Option<&str>, start: u64| Function {
                module: "mariadbd".to_owned(),
                name: name.map(str::to_owned),
                source: source.map(str::to_owned),
                start,
            };
            let functions = vec![
                function(None, None, start),
                function(None, Some("row0row.cc…row0upd.cc"), start + 16),
                function(Some("row_search_mvcc"), None, 0),
                function(None, Some("btr0cur.cc"), start + 32),
            ];
            let stack = |frames: &[Frame]| Stack { frames: frames.to_vec(), samples: 1 };
            let module = "mariadbd".to_owned();
            Profile {
                functions,
                modules: vec![ModuleBuild { module, build: build.to_owned() }],
                stacks: [&[0, 1, 2][..], &[0, 3, 2], &[0]].map(stack).into(),
                ..Profile::default()
            }
        };
        let (one, other) = (profile("1a", 0x1000), profile("2b", 0x2340));
        let innermost = |titles: &Titles, profile: &Profile| -> Vec<String> {
            let TitledStacks { titles, stacks } = titles.stacks(profile);
            stacks.iter().map(|frames| titles[frames[0] as usize].clone()).collect()
        };
        let different = Titles::of([&one, &other]);
        let below =
            ["unnamed below row_search_mvcc", "unnamed below btr0cur.cc", "unnamed in mariadbd"];
        assert_eq!(innermost(&different, &one), below);
        assert_eq!(innermost(&different, &other), below);
        let same = Titles::of([&one, &one]);
        assert_eq!(innermost(&same, &one), ["mariadbd+0x1000"; 3]);
    }
}
