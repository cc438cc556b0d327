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
    /// What a failed assertion of PostgreSQL calls, and something else.
    postgresql_assertion: bool,
    /// What counts for a profile.
    pub(super) instrumented: bool,
}

/// What failed assertions call: the C library's.
const ASSERTIONS: [&str; 3] = ["__assert_fail", "__assert", "__assert_perror_fail"];

/// What PostgreSQL's failed assertions call, and the one function that calls it without them.
const POSTGRESQL_ASSERTION: &str = "ExceptionalCondition";
const POSTGRESQL_THROW: &str = "pg_re_throw";

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
        let mut throws = false;
        for symbol in file.symbols().filter(ObjectSymbol::is_definition) {
            let Ok(name) = symbol.name() else { continue };
            // Counters are the object's own.
            signs.instrumented |= name.starts_with("__llvm_prf") || name.starts_with("__profc_");
            throws |= name == POSTGRESQL_THROW;
        }
        signs.assertions |= signs.postgresql_assertion && !throws;
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
        } else if name == POSTGRESQL_ASSERTION {
            self.postgresql_assertion = true;
        } else if name.starts_with("__gcov_") || name.starts_with("__llvm_profile_") {
            self.instrumented = true;
        }
    }
}
