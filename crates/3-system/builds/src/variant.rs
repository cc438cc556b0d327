//! The compiler and linker flags of a variant, and of the distribution for its packages.

use std::env;
use std::os::unix::ffi::OsStrExt;
use std::process::Stdio;

use dbdyno_types::build::{Hardening, Lto, Packaging, Variant};

use crate::command::clean_command;
use crate::recipe::Flags;
use crate::{BuildError, CompilerKind};

/// Prevents gcc from splitting functions: BOLT requires complete functions, and splits them itself.
/// gcc only.
pub(crate) const WHOLE_FUNCTIONS: &str = "-fno-reorder-blocks-and-partition";

/// Keeps relocations in the linked file, which BOLT needs to move functions.
const KEEP_RELOCATIONS: &str = "-Wl,--emit-relocs";

/// The compiler flags of a variant, without those of the distribution's packaging.
///
/// `-DNDEBUG` is set for every variant without assertions, `o0` and `o1` included: variants differ
/// in code generation only.
pub fn compile_flags(variant: &Variant, compiler: CompilerKind) -> Vec<String> {
    let mut flags = vec![variant.optimization.flag()];
    if variant.debug {
        flags.push("-g".to_owned());
    }
    flags.extend(variant.march.iter().map(|cpu| format!("-march={cpu}")));
    flags.extend(variant.mtune.iter().map(|cpu| format!("-mtune={cpu}")));
    flags.extend(lto_flags(variant.lto, compiler).iter().map(|flag| (*flag).to_owned()));
    if let Some(frame_pointers) = variant.frame_pointers {
        let sign = if frame_pointers { "no-" } else { "" };
        flags.push(format!("-f{sign}omit-frame-pointer"));
    }
    flags.extend(hardening_flags(variant.hardening).iter().map(|flag| (*flag).to_owned()));
    if !variant.assertions {
        flags.push("-DNDEBUG".to_owned());
    }
    // clang does not split functions by default.
    if variant.bolt && compiler == CompilerKind::Gcc {
        flags.push(WHOLE_FUNCTIONS.to_owned());
    }
    flags.extend(variant.extra_flags.iter().filter(|flag| !is_link_flag(flag)).cloned());
    flags
}

/// The flags of a variant for linking only, to be added after the compiler flags.
pub fn link_flags(variant: &Variant) -> Vec<String> {
    let hardening: &[&str] = match variant.hardening {
        Hardening::Default => &[],
        Hardening::On => &["-Wl,-z,relro", "-Wl,-z,now"],
        Hardening::Off => &["-Wl,-z,norelro"],
    };
    let hardening = hardening.iter().map(|flag| (*flag).to_owned());
    let linker = variant.linker.iter().map(|linker| format!("-fuse-ld={linker}"));
    let bolt = variant.bolt.then(|| KEEP_RELOCATIONS.to_owned());
    let own = variant.extra_flags.iter().filter(|flag| is_link_flag(flag)).cloned();
    hardening.chain(linker).chain(bolt).chain(own).collect()
}

/// Whether a flag is for the linker only. Compilers warn about such a flag with `-c`.
pub(crate) fn is_link_flag(flag: &str) -> bool {
    ["-Wl,", "-l", "-L", "-fuse-ld="].iter().any(|prefix| flag.starts_with(prefix))
}

/// With gcc, linking uses all CPUs; the number of partitions, and thus the code, does not depend on
/// it.
const fn lto_flags(lto: Lto, compiler: CompilerKind) -> &'static [&'static str] {
    match (lto, compiler) {
        (Lto::Off, _) => &[],
        (Lto::Full | Lto::Thin, CompilerKind::Gcc) => &["-flto=auto"],
        (Lto::Full, CompilerKind::Clang) => &["-flto"],
        (Lto::Thin, CompilerKind::Clang) => &["-flto=thin"],
        (Lto::Fat, CompilerKind::Gcc) => &["-flto=auto", "-ffat-lto-objects"],
        (Lto::Fat, CompilerKind::Clang) => &["-flto", "-ffat-lto-objects"],
    }
}

const fn hardening_flags(hardening: Hardening) -> &'static [&'static str] {
    match hardening {
        Hardening::Default => &[],
        Hardening::On => &[
            "-fstack-protector-strong",
            "-D_FORTIFY_SOURCE=2",
            "-fstack-clash-protection",
            #[cfg(target_arch = "x86_64")]
            "-fcf-protection=full",
        ],
        Hardening::Off => &[
            "-fno-stack-protector",
            "-U_FORTIFY_SOURCE",
            "-fno-stack-clash-protection",
            #[cfg(target_arch = "x86_64")]
            "-fcf-protection=none",
        ],
    }
}

const PROGRAM: &str = "dpkg-buildflags";

/// The distribution's flags.
pub(crate) fn packaging_flags(
    packaging: Packaging,
    compiler: CompilerKind,
) -> Result<Flags, BuildError> {
    let lto = match packaging {
        Packaging::None => return Ok(Flags::default()),
        Packaging::Flags => false,
        Packaging::FlagsWithLto => true,
    };
    let get = |what: &str| query_variable(what, lto);
    let compile = [get("CPPFLAGS")?, get("CFLAGS")?].join(" ");
    Ok(Flags {
        compile: usable(&compile, compiler, false),
        link: usable(&get("LDFLAGS")?, compiler, true),
    })
}

fn query_variable(what: &str, lto: bool) -> Result<String, BuildError> {
    let mut command = clean_command(PROGRAM);
    command.args(["--get", what]).stderr(Stdio::null());
    // They change the flags, such as DEB_BUILD_OPTIONS and DEB_CFLAGS_APPEND.
    for (variable, _) in env::vars_os().filter(|(name, _)| name.as_bytes().starts_with(b"DEB_")) {
        command.env_remove(variable);
    }
    if lto {
        command.env("DEB_BUILD_MAINT_OPTIONS", "optimize=+lto");
    }
    let output = command.output().ok().filter(|output| output.status.success());
    let purpose = "the distribution's compiler flags";
    let output = output.ok_or_else(|| BuildError::missing_tool(PROGRAM, purpose, "dpkg-dev"))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn usable(text: &str, compiler: CompilerKind, link: bool) -> Vec<String> {
    text.split_whitespace()
        // It contains the current directory.
        .filter(|flag| !flag.starts_with("-ffile-prefix-map="))
        // It only warns about dates in the source, and only gcc supports it.
        .filter(|flag| *flag != "-Wdate-time")
        .filter(|flag| compiler == CompilerKind::Gcc || *flag != "-ffat-lto-objects")
        .filter(|flag| link || !is_link_flag(flag))
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use dbdyno_types::build::Pgo;

    use super::*;

    fn flags(name: &str, compiler: CompilerKind) -> String {
        compile_flags(&Variant::by_name(name).unwrap(), compiler).join(" ")
    }

    #[test]
    fn presets_have_the_published_flags() {
        let flags = |name| flags(name, CompilerKind::Clang);
        assert_eq!(flags("rel_withdbg"), "-O2 -g -DNDEBUG");
        assert_eq!(flags("rel_o2"), "-O2 -DNDEBUG");
        assert_eq!(flags("rel"), "-O3 -DNDEBUG");
        assert_eq!(flags("rel_native"), "-O3 -march=native -mtune=native -DNDEBUG");
        assert_eq!(flags("rel_o2_lto"), "-O2 -flto -DNDEBUG");
        assert_eq!(flags("rel_lto"), "-O3 -flto -DNDEBUG");
        assert_eq!(flags("rel_native_lto"), "-O3 -march=native -mtune=native -flto -DNDEBUG");
        assert_eq!(flags("o1"), "-O1 -DNDEBUG");
        assert_eq!(flags("o0"), "-O0 -DNDEBUG");
    }

    #[test]
    fn gcc_links_on_all_cpus() {
        assert_eq!(flags("rel_lto", CompilerKind::Gcc), "-O3 -flto=auto -DNDEBUG");
    }

    #[test]
    fn no_two_presets_share_flags_and_profile() {
        let all = Variant::all();
        let flags: BTreeSet<_> =
            all.iter().map(|one| (compile_flags(one, CompilerKind::Gcc), one.pgo)).collect();
        assert_eq!(flags.len(), all.len());
    }

    #[test]
    fn settings_become_flags() {
        let variant = Variant {
            frame_pointers: Some(true),
            hardening: Hardening::Off,
            linker: Some("lld".to_owned()),
            lto: Lto::Thin,
            assertions: true,
            extra_flags: vec!["-fno-plt".to_owned(), "-Wl,-z,now".to_owned()],
            ..Variant::by_name("rel").unwrap()
        };
        assert_eq!(
            compile_flags(&variant, CompilerKind::Clang).join(" "),
            "-O3 -flto=thin -fno-omit-frame-pointer -fno-stack-protector -U_FORTIFY_SOURCE \
             -fno-stack-clash-protection -fcf-protection=none -fno-plt"
        );
        assert_eq!(link_flags(&variant).join(" "), "-Wl,-z,norelro -fuse-ld=lld -Wl,-z,now");
    }

    #[test]
    fn bolt_variants_keep_whole_functions_and_relocations() {
        let flags = |compiler| flags("rel_lto_pgo_bolt", compiler);
        assert_eq!(
            flags(CompilerKind::Gcc),
            "-O3 -flto=auto -DNDEBUG -fno-reorder-blocks-and-partition"
        );
        assert_eq!(flags(CompilerKind::Clang), "-O3 -flto -DNDEBUG");
        let variant = Variant::by_name("rel_lto_pgo_bolt").unwrap();
        assert_eq!(link_flags(&variant), ["-Wl,--emit-relocs"]);
        let same = Variant::by_name("rel_lto_pgo").unwrap();
        assert_eq!(variant.without_bolt(), same);
    }

    #[test]
    fn sampled_profile_keeps_the_flags() {
        let (plain, sampled) = ("rel_lto", "rel_lto_autofdo");
        for compiler in [CompilerKind::Gcc, CompilerKind::Clang] {
            assert_eq!(flags(sampled, compiler), flags(plain, compiler));
        }
        let variant = Variant::by_name("rel_o2_autofdo_bolt").unwrap();
        assert!(variant.pgo == Pgo::Sample && variant.bolt);
    }

    #[test]
    fn paths_and_unsupported_flags_are_omitted() {
        let text = "-g -O2 -ffile-prefix-map=/tmp=. -flto=auto -ffat-lto-objects -Wdate-time\n";
        let of = |compiler| usable(text, compiler, false).join(" ");
        assert_eq!(of(CompilerKind::Gcc), "-g -O2 -flto=auto -ffat-lto-objects");
        assert_eq!(of(CompilerKind::Clang), "-g -O2 -flto=auto");
    }
}
