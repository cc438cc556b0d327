//! The keys of a candidate about compiling its system: `source`, `variant`, `compiler` and others.

use dbdyno_document::{Spanned, Table, did_you_mean, nearest};
use dbdyno_types::FlagCheck;
use dbdyno_types::build::{
    BoltProfileMethod, BuildType, ConfigureTool, Hardening, Lto, Optimization, Packaging, Pgo,
    SourceOrigin, Variant, VariantOverrides,
};
use dbdyno_units::Nanos;
use dbdyno_workloads::catalog::Catalog;

use crate::experiment::{Build, Training};
use crate::workload::selected;
use crate::{names, source};

/// Long enough for high counts of common code.
const DEFAULT_TIME: Nanos = Nanos::from_millis(500);

/// The keys that this module reads, in addition to [`SETTINGS`].
const KEYS: [&str; 11] = [
    "variant",
    "compiler",
    "flags",
    "source",
    "configure",
    "configure_with",
    "training",
    "training_time",
    "bolt",
    "bolt_profile",
    "audit_ignore",
];

/// Definitions that a candidate can refer to.
pub struct Definitions {
    /// The variants of this experiment; `None` for one with problems.
    pub variants: Vec<(String, Option<VariantOverrides>)>,
    /// `[source]`, for candidates without `source`.
    pub source: Option<SourceOrigin>,
    /// `audit_ignore` of `[checks]`, for candidates without it.
    pub audit_ignore: Vec<FlagCheck>,
    /// The microbenchmarks to train with.
    pub catalog: Catalog,
}

/// Whether the candidate has a variant, or settings instead of one.
pub fn is_requested(table: &Table<'_>) -> bool {
    ["variant"].iter().chain(&SETTINGS).any(|key| table.has(key))
        || table.peek_bool("bolt") == Some(true)
}

pub fn refuse(table: &mut Table<'_>, help: &str) {
    for key in KEYS.into_iter().chain(SETTINGS) {
        table.refuse(key, "applies to systems that dbdyno compiles only", help);
    }
}

/// Reads the keys; `None` after a problem.
pub fn read(
    table: &mut Table<'_>,
    definitions: &Definitions,
    default: Option<&SourceOrigin>,
) -> Option<Build> {
    if !is_requested(table) {
        table.problem(
            table.span(),
            "missing key `variant` in [[candidate]]",
            "add one, such as `variant = \"rel\"`",
        );
    }
    let chosen = read_variant(table, definitions);
    let default = default.or(definitions.source.as_ref());
    let source = read_source(table, default);
    let named = table.has("compiler");
    let compiler = read_compiler(table);
    let flags = read_flags(table);
    let help = "write it in one line as for the tool, such as \"-DWITH_NUMA=ON\"";
    let configure =
        read_strings(table, "configure", |argument| !argument.is_empty(), "an argument", help);
    let audit_ignore = read_audit_ignore(table);
    let configure_with = table.choice("configure_with", ConfigureTool::WORDS);
    let Some(Chosen { variant, settings }) = chosen else {
        skip_training(table);
        return None;
    };
    let bolt = read_bolt(table, &variant);
    let training = read_training(table, &variant, bolt, &definitions.catalog);
    Some(Build {
        source: source?,
        variant: variant.name,
        compiler: variant.compiler.filter(|_| !named).or(compiler)?,
        settings,
        flags: flags?,
        configure_with: configure_with.map(|tool| tool.value),
        configure: configure?,
        training: training?,
        bolt,
        audit_ignore: audit_ignore.unwrap_or_else(|| definitions.audit_ignore.clone()),
    })
}

struct Chosen {
    variant: Variant,
    /// `None` for a preset.
    settings: Option<VariantOverrides>,
}

/// Reads `variant`, and the settings in addition to it or instead of it.
fn read_variant(table: &mut Table<'_>, definitions: &Definitions) -> Option<Chosen> {
    let named = match table.string("variant") {
        Some(name) => find_variant(table, definitions, name),
        None if table.has("variant") => None,
        None => find_preset(DEFAULT_BASE),
    };
    // Also after a problem: keys that are not read are unknown.
    let settings = read_settings(table);
    let named = named?;
    // If the variant already includes BOLT, `bolt` only decides whether BOLT is run.
    let wants_bolt = table.peek_bool("bolt") == Some(true) && !named.variant.bolt;
    let own = VariantOverrides { bolt: wants_bolt.then_some(true), ..settings };
    if own == VariantOverrides::default() {
        return Some(named);
    }
    let (base, name) = (named.variant.name.clone(), own.name(&named.variant.name));
    let settings = named.settings.unwrap_or(VariantOverrides { base, ..Default::default() });
    let settings = settings.overlaid(own);
    let variant = settings.resolve(&name).ok()?;
    Some(match variant.equal_preset() {
        Some(variant) => Chosen { variant, settings: None },
        None => Chosen { variant, settings: Some(settings) },
    })
}

fn find_preset(name: &str) -> Option<Chosen> {
    Some(Chosen { variant: Variant::by_name(name).ok()?, settings: None })
}

fn find_variant(
    table: &Table<'_>,
    definitions: &Definitions,
    name: Spanned<&str>,
) -> Option<Chosen> {
    let own = definitions.variants.iter().find(|(own, _)| own == name.value);
    if let Some((name, settings)) = own {
        let settings = settings.clone()?;
        let variant = settings.resolve(name).ok()?;
        return Some(Chosen { variant, settings: Some(settings) });
    }
    let preset = find_preset(name.value);
    if preset.is_none() {
        let presets = Variant::names();
        let own = definitions.variants.iter().map(|(name, _)| name);
        let all = presets.iter().chain(own).map(String::as_str);
        let message = format!("unknown variant `{}`", name.value);
        table.problem(name.span, message, help_of_unknown(name.value, all));
    }
    preset
}

fn read_source(table: &mut Table<'_>, default: Option<&SourceOrigin>) -> Option<SourceOrigin> {
    match table.table("source") {
        Some(inner) => source::read(inner),
        None if table.has("source") => None,
        None => Some(default.cloned().unwrap_or_default()),
    }
}

/// Reads `compiler`, by default gcc; `None` after a problem.
pub fn read_compiler(table: &mut Table<'_>) -> Option<String> {
    let Some(compiler) = table.string("compiler") else {
        return (!table.has("compiler")).then(|| "gcc".to_owned());
    };
    if compiler.value.is_empty() || compiler.value.contains(char::is_control) {
        return table.reject(
            compiler.span,
            "`compiler` is not the name of a compiler",
            "use `gcc`, `clang`, a versioned name or a path",
        );
    }
    Some(compiler.value.to_owned())
}

pub fn read_flags(table: &mut Table<'_>) -> Option<Vec<String>> {
    // Compilers treat an argument without a dash as an input file.
    let help = "flags start with `-`; join arguments: \"--param=max-inline=9\"";
    read_strings(table, "flags", |flag| flag.starts_with('-'), "a compiler flag", help)
}

fn read_strings(
    table: &mut Table<'_>,
    key: &'static str,
    is_valid: fn(&str) -> bool,
    what: &str,
    help: &str,
) -> Option<Vec<String>> {
    let Some(texts) = table.strings(key) else { return (!table.has(key)).then(Vec::new) };
    for text in &texts.value {
        if !is_valid(text.value) || text.value.contains(char::is_control) {
            table.problem(text.span, format!("`{}` is not {what}", text.value), help);
        }
    }
    Some(texts.value.into_iter().map(|text| text.value.to_owned()).collect())
}

/// Reads `audit_ignore`: checks of the flag audit whose violations are notes only.
pub fn read_audit_ignore(table: &mut Table<'_>) -> Option<Vec<FlagCheck>> {
    let names = table.strings("audit_ignore")?;
    let read = |name: Spanned<&str>| {
        FlagCheck::by_name(name.value).or_else(|| {
            let message = format!("unknown check `{}`", name.value);
            let help = did_you_mean(name.value, &FlagCheck::ALL.map(FlagCheck::name));
            table.reject(name.span, message, help)
        })
    };
    Some(names.value.into_iter().filter_map(read).collect())
}

/// Accepts all keys unchecked: valid keys depend on the variant, which is unknown.
fn skip_training(table: &mut Table<'_>) {
    table.strings("training");
    table.string("training_time");
    table.bool("bolt");
    table.string("bolt_profile");
}

/// Reads `bolt`: whether BOLT is run on a build of this variant.
fn read_bolt(table: &mut Table<'_>, variant: &Variant) -> bool {
    if variant.bolt {
        return table.bool("bolt").is_none_or(|bolt| bolt.value);
    }
    refuse_without_bolt(table, "bolt");
    true
}

fn refuse_without_bolt(table: &mut Table<'_>, key: &'static str) {
    table.refuse(key, "applies to candidates that BOLT optimizes only", "set `bolt = true`");
}

/// Reads the keys for a variant; the outer `None` after a problem. With `bolt = false`, BOLT needs
/// no profile.
fn read_training(
    table: &mut Table<'_>,
    variant: &Variant,
    bolt: bool,
    catalog: &Catalog,
) -> Option<Option<Training>> {
    let with_bolt = variant.bolt && bolt;
    let method = if with_bolt {
        table.choice("bolt_profile", BoltProfileMethod::WORDS).map(|method| method.value)
    } else {
        refuse_without_bolt(table, "bolt_profile");
        None
    };
    let bolt_profile = method.unwrap_or(BoltProfileMethod::Instrumentation);
    if variant.pgo == Pgo::Off && !with_bolt {
        for key in ["training", "training_time"] {
            let help = "set `pgo = \"instrument\"`, `pgo = \"sample\"` or `bolt = true`";
            table.refuse(key, "applies to candidates with a profile only", help);
        }
        return Some(None);
    }
    let times = Nanos::from_millis(10)..=Nanos::from_secs(3600);
    let time = table.number("training_time", times).unwrap_or(DEFAULT_TIME);
    let Some(words) = table.strings("training") else {
        if !table.has("training") {
            let message = format!("missing `training`: `{variant}` uses a profile");
            let help = "list microbenchmarks or groups; exclude with `!`: [\"all\", \"!point-1\"]";
            table.problem(table.span(), message, help);
        }
        return None;
    };
    let (out, chosen): (Vec<Spanned<&str>>, Vec<Spanned<&str>>) =
        words.value.iter().copied().partition(|word| word.value.starts_with('!'));
    let out: Vec<_> = out.iter().map(|word| word.map(|out| out.trim_start_matches('!'))).collect();
    let (chosen, out) = (selected(table, catalog, &chosen), selected(table, catalog, &out));
    let (chosen, out) = (chosen?, out?);
    let left_out = |name: &str| out.iter().any(|other| other.name == name);
    let microbenchmarks: Vec<_> = chosen.into_iter().filter(|one| !left_out(&one.name)).collect();
    if microbenchmarks.is_empty() {
        return table.reject(
            words.span,
            "`training` selects nothing",
            "list at least one microbenchmark that is not excluded",
        );
    }
    let words = words.value.iter().map(|word| word.value.to_owned()).collect();
    Some(Some(Training { words, microbenchmarks, time, bolt_profile }))
}

/// The settings that `[variant.NAME]` and a candidate both have. A candidate's `bolt` is read with
/// its training.
const SETTINGS: [&str; 13] = [
    "build_type",
    "optimization",
    "debug",
    "assertions",
    "lto",
    "native",
    "march",
    "mtune",
    "frame_pointers",
    "hardening",
    "packaging",
    "linker",
    "pgo",
];

const LINKERS: [(&str, &str); 4] =
    [("lld", "lld"), ("gold", "gold"), ("bfd", "bfd"), ("mold", "mold")];

/// Reads all `[variant.NAME]`, each with its name; `None` for one with problems.
pub fn read_variants(root: &mut Table<'_>) -> Vec<(String, Option<VariantOverrides>)> {
    let Some(mut all) = root.table("variant") else { return Vec::new() };
    let presets = Variant::names();
    let mut variants = Vec::new();
    for (name, table) in all.named_tables() {
        let overrides = read_definition(table, &presets);
        if presets.iter().any(|preset| preset == name.value) {
            let message = format!("`{}` is the name of a preset", name.value);
            all.problem(name.span, message, "choose another name");
        } else {
            let valid = names::check(&all, name, names::OF_CANDIDATE);
            variants.push((name.value.to_owned(), overrides.filter(|_| valid.is_some())));
        }
    }
    variants
}

fn read_definition(mut table: Table<'_>, presets: &[String]) -> Option<VariantOverrides> {
    let base = read_base(&mut table, presets);
    let settings = read_settings(&mut table);
    let bolt = table.bool("bolt").map(|value| value.value);
    let named = table.has("compiler");
    let compiler = read_compiler(&mut table).filter(|_| named);
    let flags = read_flags(&mut table).unwrap_or_default();
    table.finish();
    Some(VariantOverrides { base: base?, compiler, flags, bolt, ..settings })
}

/// Reads the keys of [`SETTINGS`].
fn read_settings(table: &mut Table<'_>) -> VariantOverrides {
    let native = read_native(table);
    VariantOverrides {
        build_type: word(table, "build_type", BuildType::WORDS),
        optimization: word(table, "optimization", Optimization::WORDS),
        lto: word(table, "lto", Lto::WORDS),
        hardening: word(table, "hardening", Hardening::WORDS),
        packaging: word(table, "packaging", Packaging::WORDS),
        pgo: word(table, "pgo", Pgo::WORDS),
        debug: table.bool("debug").map(|value| value.value),
        assertions: table.bool("assertions").map(|value| value.value),
        frame_pointers: table.bool("frame_pointers").map(|value| value.value),
        march: read_name(table, "march").or_else(|| native.clone()),
        mtune: read_name(table, "mtune").or(native),
        linker: word(table, "linker", &LINKERS).map(str::to_owned),
        ..VariantOverrides::default()
    }
}

fn word<T: Copy>(table: &mut Table<'_>, key: &'static str, words: &[(&str, T)]) -> Option<T> {
    table.choice(key, words).map(|word| word.value)
}

/// `native = true` sets `march` and `mtune`.
fn read_native(table: &mut Table<'_>) -> Option<String> {
    let native = table.bool("native")?;
    if native.value {
        return Some("native".to_owned());
    }
    table.reject(native.span, "`native` must be true", "remove it, or set `march` and `mtune`")
}

fn read_base(table: &mut Table<'_>, presets: &[String]) -> Option<String> {
    let Some(base) = table.string("base") else {
        return (!table.has("base")).then(|| DEFAULT_BASE.to_owned());
    };
    if presets.iter().any(|preset| preset == base.value) {
        return Some(base.value.to_owned());
    }
    let message = format!("unknown preset `{}`", base.value);
    let names = presets.iter().map(String::as_str);
    table.reject(base.span, message, help_of_unknown(base.value, names))
}

/// The help text for an unknown variant: the nearest one, or else where they are listed.
pub fn help_of_unknown<'v>(name: &str, valid: impl Iterator<Item = &'v str>) -> String {
    near_unknown(name, valid)
        .unwrap_or_else(|| "`dbdyno list variants` prints the presets".to_owned())
}

/// The help text that names the variant nearest to an unknown one; `None` if none is near.
pub fn near_unknown<'v>(name: &str, valid: impl Iterator<Item = &'v str>) -> Option<String> {
    let lower = name.trim_start_matches('-').to_lowercase();
    // Also a level alone, such as `O2`.
    for full in [format!("rel_{lower}"), lower] {
        // Presets with -O3 have no level in their name: the nearest name has another level.
        let without_level = full.replace("_o3", "").replace("_03", "");
        let has_level = without_level != full;
        if Variant::by_name(&without_level).is_ok() {
            let which = if has_level { ", which is compiled with -O3" } else { "" };
            return Some(format!("did you mean `{without_level}`{which}?"));
        }
    }
    nearest(name, valid).map(|near| format!("did you mean `{near}`?"))
}

/// The preset that settings override if none is named.
pub const DEFAULT_BASE: &str = "rel";

/// Reads the name of a CPU, which becomes part of a flag.
fn read_name(table: &mut Table<'_>, key: &'static str) -> Option<String> {
    let name: Spanned<&str> = table.string(key)?;
    let valid = |c: char| c.is_ascii_alphanumeric() || "-_.+/".contains(c);
    if name.value.is_empty() || !name.value.chars().all(valid) {
        let message = format!("invalid value of `{key}`: `{}`", name.value);
        return table.reject(name.span, message, "write it as for the compiler");
    }
    Some(name.value.to_owned())
}
