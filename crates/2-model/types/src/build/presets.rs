//! Presets of the published studies, their combinations with PGO and BOLT, and two for calibration.

use super::{BuildType, Hardening, Lto, Optimization, Packaging, Pgo, Variant};

/// All presets, the usual baseline first.
pub(super) fn all() -> Vec<Variant> {
    let mut presets = releases();
    let with_pgo = |pgo: Pgo, name: &str, description: &str| {
        let presets = releases().into_iter();
        let preset = move |preset| Variant { pgo, ..suffixed(preset, name, description) };
        presets.map(preset).collect::<Vec<_>>()
    };
    presets.extend(with_pgo(Pgo::Instrument, "pgo", "with an instrumented profile"));
    presets.extend(with_pgo(Pgo::Sample, "autofdo", "with a sampled profile"));
    let with_bolt = |preset: &Variant| Variant {
        bolt: true,
        ..suffixed(preset.clone(), "bolt", "optimized by BOLT")
    };
    presets.extend(presets.iter().map(with_bolt).collect::<Vec<_>>());
    presets.extend(calibration());
    presets
}

fn suffixed(preset: Variant, name: &str, description: &str) -> Variant {
    Variant {
        name: format!("{}_{name}", preset.name),
        description: format!("{}, {description}", preset.description),
        ..preset
    }
}

/// The presets that are also combined with PGO and BOLT.
fn releases() -> Vec<Variant> {
    vec![
        Variant {
            build_type: BuildType::RelWithDebInfo,
            optimization: Optimization::O2,
            debug: true,
            ..release("rel_withdbg", "release with debug information: -O2 -g")
        },
        Variant { optimization: Optimization::O2, ..release("rel_o2", "release at -O2") },
        release("rel", "release: -O3"),
        native(release("rel_native", "release for this machine's CPU: -O3 -march=native")),
        Variant {
            optimization: Optimization::O2,
            lto: Lto::Full,
            ..release("rel_o2_lto", "release at -O2 with link-time optimization")
        },
        Variant {
            lto: Lto::Full,
            ..release("rel_lto", "release with link-time optimization: -O3 -flto")
        },
        native(Variant {
            lto: Lto::Full,
            ..release(
                "rel_native_lto",
                "release for this machine's CPU with link-time optimization",
            )
        }),
    ]
}

fn calibration() -> Vec<Variant> {
    let at =
        |optimization, name, description| Variant { optimization, ..release(name, description) };
    vec![
        at(Optimization::O1, "o1", "-O1, for calibration: an obvious difference"),
        at(Optimization::O0, "o0", "no optimization, for calibration; compiles quickly"),
    ]
}

fn release(name: &str, description: &str) -> Variant {
    Variant {
        name: name.to_owned(),
        description: description.to_owned(),
        build_type: BuildType::Release,
        optimization: Optimization::O3,
        debug: false,
        assertions: false,
        lto: Lto::Off,
        march: None,
        mtune: None,
        frame_pointers: None,
        hardening: Hardening::Default,
        packaging: Packaging::None,
        linker: None,
        compiler: None,
        extra_flags: Vec::new(),
        pgo: Pgo::Off,
        bolt: false,
    }
}

fn native(variant: Variant) -> Variant {
    let native = Some("native".to_owned());
    Variant { march: native.clone(), mtune: native, ..variant }
}
