use super::{BuildType, Hardening, Lto, Optimization, Packaging, Variant};

/// The names of variants that BOLT lays out end so.
pub(super) const BOLT: &str = "_bolt";

/// The variants of the studies, and two for calibration.
pub(super) fn all() -> Vec<Variant> {
    let release = |name: &str, description: &str| Variant {
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
        pgo: false,
        autofdo: false,
        bolt: false,
    };
    let native = |variant: Variant| Variant {
        march: Some("native".to_owned()),
        mtune: Some("native".to_owned()),
        ..variant
    };
    let mut all = vec![
        Variant {
            build_type: BuildType::RelWithDebInfo,
            optimization: Optimization::O2,
            debug: true,
            ..release(
                "rel_withdbg",
                "release with debug information: -O2 -g; what distributions start from",
            )
        },
        Variant { optimization: Optimization::O2, ..release("rel_o2", "release at -O2") },
        release("rel", "release: -O3"),
        native(release(
            "rel_native",
            "release for the CPU of this machine: -O3 -march=native -mtune=native",
        )),
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
                "release for the CPU of this machine with link-time optimization",
            )
        }),
        Variant {
            optimization: Optimization::O1,
            ..release("o1", "-O1: for calibration, a difference that any measurement must see")
        },
        Variant {
            optimization: Optimization::O0,
            ..release("o0", "no optimization: for calibration, and quick to compile")
        },
    ];
    // The releases that are trained, before those for calibration.
    let releases = all.iter().filter(|variant| variant.name.starts_with("rel")).count();
    let calibration = all.split_off(releases);
    let with_profile: Vec<Variant> = all
        .iter()
        .map(|variant| Variant {
            name: format!("{}_pgo", variant.name),
            description: format!("{} with a profile", variant.name),
            pgo: true,
            ..variant.clone()
        })
        .collect();
    let sampled: Vec<Variant> = all
        .iter()
        .map(|variant| Variant {
            name: format!("{}_autofdo", variant.name),
            description: format!("{} with a sampled profile", variant.name),
            autofdo: true,
            ..variant.clone()
        })
        .collect();
    all.extend(with_profile);
    all.extend(sampled);
    let laid_out: Vec<Variant> = all
        .iter()
        .map(|variant| Variant {
            name: format!("{}{BOLT}", variant.name),
            description: format!("{}, laid out anew by BOLT", variant.name),
            bolt: true,
            ..variant.clone()
        })
        .collect();
    all.extend(laid_out);
    all.extend(calibration);
    all
}
