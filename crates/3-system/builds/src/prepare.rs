//! Flags and fingerprints of requests, before anything is compiled.

use std::collections::BTreeMap;
use std::path::Path;

use dbdyno_types::build::{Pgo, Variant};

use crate::packaging::PackagingFlags;
use crate::profile::{Profiling, find_profdata};
use crate::recipe::{self, Flags};
use crate::samples::SampleTools;
use crate::variant::compile_flags;
use crate::{
    BuildError, Compiler, CompilerError, CompilerKind, Fingerprint, HostCpu, Ingredients, Request,
};

/// A request with its flags and its fingerprint.
pub(crate) struct Prepared<'a> {
    pub(crate) request: &'a Request,
    pub(crate) flags: Flags,
    pub(crate) fingerprint: Fingerprint,
}

/// Determines flags and fingerprints. Link-time optimization is probed once per compiler.
pub(crate) fn prepare_all(requests: &[Request]) -> Vec<Result<Prepared<'_>, BuildError>> {
    let mut lto_linkers: BTreeMap<&Path, Result<Vec<String>, CompilerError>> = BTreeMap::new();
    let mut all = Vec::new();
    for request in requests {
        let Request { variant, compiler, extra_flags, .. } = request;
        let mut lto_linker = |flags: &[String]| {
            let requested = flags.iter().chain(extra_flags).map(String::as_str);
            if !recipe::requests_lto(requested) {
                return Ok(Vec::new());
            }
            let flags = lto_linkers.entry(&compiler.path);
            flags.or_insert_with(|| compiler.lto_linker()).clone()
        };
        let mut prepare = || {
            let packaging = PackagingFlags::query(variant.packaging, compiler.kind)?;
            let linker = lto_linker(&requested(&packaging, variant, compiler))?;
            prepare_one(request, &packaging, &linker)
        };
        all.push(prepare());
    }
    all
}

/// The flags of a variant with those of its packaging.
fn requested(packaging: &PackagingFlags, variant: &Variant, compiler: &Compiler) -> Vec<String> {
    [&packaging.compile[..], &compile_flags(variant, compiler.kind)].concat()
}

/// Checks that the compiler can do what a build requests: link-time optimization, profiles.
/// Compiles nothing but a trial of three lines.
///
/// # Errors
/// The reason, with what to install or to change.
pub fn check_compiler(
    compiler: &Compiler,
    variant: &Variant,
    extra_flags: &[String],
) -> Result<(), BuildError> {
    check_profile_tools(compiler, variant.pgo)?;
    let packaging = PackagingFlags::query(variant.packaging, compiler.kind)?;
    let flags = requested(&packaging, variant, compiler);
    if recipe::requests_lto(flags.iter().chain(extra_flags).map(String::as_str)) {
        compiler.lto_linker()?;
    }
    Ok(())
}

/// Checks that the tools that make this kind of profile for the compiler are installed.
///
/// # Errors
/// One is missing; the error names its package. The compiler has no such profiles.
pub fn check_profile_tools(compiler: &Compiler, pgo: Pgo) -> Result<(), BuildError> {
    match (pgo, compiler.kind) {
        (Pgo::Sample, _) => SampleTools::of(compiler).map(drop),
        (Pgo::Instrument, CompilerKind::Clang) => find_profdata(compiler).map(drop),
        (Pgo::Instrument, CompilerKind::Gcc) | (Pgo::Off, _) => Ok(()),
    }
}

fn prepare_one<'a>(
    request: &'a Request,
    packaging: &PackagingFlags,
    lto_linker: &[String],
) -> Result<Prepared<'a>, BuildError> {
    let Request { source, variant, compiler, extra_flags, options, profiling, bolt } = request;
    let flags = |extra: &[String]| {
        recipe::flags(source.system(), variant, compiler.kind, packaging, lto_linker, extra)
    };
    if let Profiling::Use(profile) = profiling {
        let flags = flags(extra_flags).compile;
        let what = request.to_string();
        profile.check(&what, source.system(), source.sha256(), compiler, &flags)?;
    }
    let flags = flags(&[&profiling.flags(compiler.kind)[..], extra_flags].concat());
    if let Some(linker) = recipe::ignored_linker(source.system(), &flags) {
        return Err(BuildError::IgnoredLinker {
            what: request.to_string(),
            system: source.system(),
            linker: linker.to_owned(),
        });
    }
    let host = if flags.depends_on_host() {
        let path = Path::new("/proc/cpuinfo");
        Some(HostCpu::read().map_err(|error| BuildError::io("reading", path, error))?)
    } else {
        None
    };
    let linker = flags.linker().and_then(|linker| compiler.linker_version(linker));
    let ingredients = Ingredients {
        system: source.system(),
        source: source.sha256(),
        version: source.version(),
        variant,
        flags: &flags,
        options,
        profiling: &profiling.identity(),
        bolt: "",
        compiler,
        linker: linker.as_deref(),
        host: host.as_ref(),
    };
    let mut fingerprint = ingredients.fingerprint();
    if let Some(bolt) = bolt {
        bolt.check(&request.to_string(), &fingerprint)?;
        fingerprint = Ingredients { bolt: &bolt.identity(), ..ingredients }.fingerprint();
    }
    Ok(Prepared { request, flags, fingerprint })
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::recipe::testing::compiler;

    #[test]
    fn missing_tool_for_instrumented_profiles_is_reported_before_compiling() {
        let clang = Compiler {
            path: PathBuf::from("/nowhere/clang-99"),
            resolved: PathBuf::from("/nowhere/bin/clang"),
            version: "99.1.0".to_owned(),
            ..compiler(CompilerKind::Clang)
        };
        let variant = Variant::by_name("rel_pgo").unwrap();
        let error = check_compiler(&clang, &variant, &[]).unwrap_err().to_string();
        assert!(error.contains("/nowhere/llvm-profdata-99"), "{error}");
        assert!(error.ends_with("apt-get install llvm-99"), "{error}");
        check_profile_tools(&compiler(CompilerKind::Gcc), variant.pgo).unwrap();
    }
}
