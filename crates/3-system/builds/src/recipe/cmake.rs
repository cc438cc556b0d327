//! Steps shared by the systems that are configured with cmake.

use super::{Counts, RecipeInput, Step, words};

/// The configure command; the arguments `own` follow the common ones.
pub(super) fn configure(order: &RecipeInput<'_>, own: Vec<String>) -> Step {
    let compiler = order.compiler;
    let kind = order.variant.build_type;
    let mut args = words(&["-G", "Ninja", "-S", &order.source.to_string_lossy(), "-B", "."]);
    let mut define = |name: &str, value: &str| args.push(format!("-D{name}={value}"));
    define("CMAKE_BUILD_TYPE", kind.word());
    define("CMAKE_INSTALL_PREFIX", &order.prefix().to_string_lossy());
    define("CMAKE_EXPORT_COMPILE_COMMANDS", "ON");
    define("CMAKE_C_COMPILER", &compiler.path.to_string_lossy());
    define("CMAKE_CXX_COMPILER", &compiler.cxx().to_string_lossy());
    if let Some((ar, ranlib)) = order.archiver() {
        define("CMAKE_AR", &ar.to_string_lossy());
        define("CMAKE_RANLIB", &ranlib.to_string_lossy());
    }
    let flags = order.flags.compile.join(" ");
    let of_type = kind.word().to_uppercase();
    define(&format!("CMAKE_C_FLAGS_{of_type}"), &flags);
    define(&format!("CMAKE_CXX_FLAGS_{of_type}"), &flags);
    let link = order.flags.link.join(" ");
    for what in ["EXE", "MODULE", "SHARED"] {
        if !link.is_empty() {
            define(&format!("CMAKE_{what}_LINKER_FLAGS"), &link);
        }
    }
    args.extend(own);
    args.extend(order.options.arguments.iter().cloned());
    Step::new(format!("configuring {}", order.system.title()), "cmake", args)
}

/// The command that compiles these targets; all targets if empty.
pub(super) fn compile(order: &RecipeInput<'_>, targets: &[&str]) -> Step {
    let mut args = vec![format!("-j{}", order.jobs)];
    args.extend(words(targets));
    Step {
        counts: Counts::Ninja,
        ..Step::new(format!("compiling {}", order.system.title()), "ninja", args)
    }
}
