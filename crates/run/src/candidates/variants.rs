//! Variants that an experiment defines.

use dbdyno_builds::Variant;
use dbdyno_builds::variant::{BuildType, Hardening, Lto, Optimization, Packaging};
use dbdyno_spec::experiment::VariantSettings;

/// The variant of this name: a built-in one with other settings.
pub(super) fn defined(name: &str, settings: &VariantSettings) -> Variant {
    let base = Variant::by_name(&settings.base).expect("a valid experiment has known variants");
    let VariantSettings { march, mtune, linker, compiler, .. } = settings.clone();
    // Words that are none were reported with their place in the file.
    Variant {
        name: name.to_owned(),
        description: format!("{} with settings of the experiment", settings.base),
        build_type: word(&settings.build_type, BuildType::from_word).unwrap_or(base.build_type),
        optimization: word(&settings.optimization, Optimization::from_word)
            .unwrap_or(base.optimization),
        debug: settings.debug.unwrap_or(base.debug),
        assertions: settings.assertions.unwrap_or(base.assertions),
        lto: word(&settings.lto, Lto::from_word).unwrap_or(base.lto),
        march: march.or(base.march),
        mtune: mtune.or(base.mtune),
        frame_pointers: settings.frame_pointers.or(base.frame_pointers),
        hardening: word(&settings.hardening, Hardening::from_word).unwrap_or(base.hardening),
        packaging: word(&settings.packaging, Packaging::from_word).unwrap_or(base.packaging),
        linker: linker.or(base.linker),
        compiler: compiler.or(base.compiler),
        extra_flags: [base.extra_flags, settings.flags.clone()].concat(),
        pgo: base.pgo,
        autofdo: base.autofdo,
        bolt: base.bolt,
    }
}

fn word<T>(word: &Option<String>, from: impl Fn(&str) -> Option<T>) -> Option<T> {
    word.as_deref().and_then(from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_set_is_as_in_the_base() {
        let settings = VariantSettings {
            base: "rel_withdbg".to_owned(),
            packaging: Some("flags-with-lto".to_owned()),
            march: Some("x86-64-v3".to_owned()),
            ..VariantSettings::default()
        };
        let variant = defined("packaged", &settings);
        assert_eq!(variant.name, "packaged");
        assert_eq!(variant.packaging, Packaging::FlagsWithLto);
        assert_eq!(variant.march.as_deref(), Some("x86-64-v3"));
        assert_eq!(variant.build_type, BuildType::RelWithDebInfo);
        assert!(variant.debug);
    }
}
