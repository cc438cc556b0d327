use object::{Object, ObjectSymbol};

/// What the names of other files' functions tell: those that an object calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Signs {
    /// The stack protector's handler.
    pub(super) stack_protector: bool,
    /// Functions of the C library that check the bounds of buffers.
    pub(super) fortified: Vec<String>,
    /// What a failed assertion calls.
    pub(super) assertions: bool,
    /// What counts for a profile.
    pub(super) instrumented: bool,
}

/// What failed assertions call: the C library's, and PostgreSQL's own.
const ASSERTIONS: [&str; 4] =
    ["__assert_fail", "__assert", "__assert_perror_fail", "ExceptionalCondition"];

/// These end like checked functions, and are there without `_FORTIFY_SOURCE`, too.
const NOT_FORTIFIED: [&str; 2] = ["__stack_chk_fail", "__chk_fail"];

impl Signs {
    pub(super) fn of(file: &object::File<'_>) -> Self {
        let mut signs = Self::default();
        for symbol in file.symbols().chain(file.dynamic_symbols()) {
            if symbol.is_undefined()
                && let Ok(name) = symbol.name()
            {
                signs.note(name);
            }
        }
        for symbol in file.symbols() {
            // Counters are the object's own.
            signs.instrumented |= symbol.is_definition()
                && symbol.name().is_ok_and(|name| {
                    name.starts_with("__llvm_prf") || name.starts_with("__profc_")
                });
        }
        signs.fortified.sort();
        signs.fortified.dedup();
        signs
    }

    fn note(&mut self, name: &str) {
        // Versions of dynamic symbols come behind an @.
        let name = name.split('@').next().unwrap_or(name);
        if name.starts_with("__stack_chk_fail") {
            self.stack_protector = true;
        } else if name.starts_with("__") && name.ends_with("_chk") && !NOT_FORTIFIED.contains(&name)
        {
            self.fortified.push(name.to_owned());
        } else if ASSERTIONS.contains(&name) {
            self.assertions = true;
        } else if name.starts_with("__gcov_") || name.starts_with("__llvm_profile_") {
            self.instrumented = true;
        }
    }
}
