use object::{Object, ObjectSymbol};

/// Properties that the undefined symbols of an object show, mainly the functions that it calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Signs {
    /// Whether the stack protector's handler is called.
    pub(super) stack_protector: bool,
    /// Called C library functions with bounds checks.
    pub(super) fortified: Vec<String>,
    /// Whether the handler of failed assertions is called.
    pub(super) assertions: bool,
    /// Whether `ExceptionalCondition` is called: by PostgreSQL's assertions, and by `pg_re_throw`.
    postgresql_assertion: bool,
    /// Whether it is instrumented to collect a profile.
    pub(super) instrumented: bool,
}

/// The C library's handlers of failed assertions.
const ASSERTIONS: [&str; 3] = ["__assert_fail", "__assert", "__assert_perror_fail"];

/// The handler of PostgreSQL's failed assertions, and the only function that calls it in builds
/// without assertions.
const POSTGRESQL_ASSERTION: &str = "ExceptionalCondition";
const POSTGRESQL_THROW: &str = "pg_re_throw";

/// Names that end like those of checked functions but are also used without `_FORTIFY_SOURCE`.
const NOT_FORTIFIED: [&str; 2] = ["__stack_chk_fail", "__chk_fail"];

impl Signs {
    pub(super) fn of(file: &object::File<'_>) -> Self {
        let mut signs = Self::default();
        for symbol in file.symbols().chain(file.dynamic_symbols()) {
            if symbol.is_undefined()
                && let Ok(name) = symbol.name()
            {
                signs.note(name, symbol.is_weak());
            }
        }
        let mut throws = false;
        for symbol in file.symbols().filter(ObjectSymbol::is_definition) {
            let Ok(name) = symbol.name() else { continue };
            // The counters are defined in the object itself.
            signs.instrumented |= name.starts_with("__llvm_prf") || name.starts_with("__profc_");
            throws |= name == POSTGRESQL_THROW;
        }
        signs.assertions |= signs.postgresql_assertion && !throws;
        signs.fortified.sort();
        signs.fortified.dedup();
        signs
    }

    fn note(&mut self, name: &str, weak: bool) {
        // The version of a dynamic symbol follows an @.
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
            // Instrumented code needs them. A weak reference is that of code which writes the counts of
            // others before it aborts, as Abseil's log does.
            self.instrumented |= !weak;
        }
    }
}
