//! Compiler settings: `[variant.NAME]`, and the same keys of a candidate.

use dbdyno_document::{Problem, Spanned, Table, nearest};
use dbdyno_types::build::{
    BuildType, Hardening, Lto, Optimization, Packaging, Pgo, Variant, VariantOverrides,
};

use crate::{build, names};

/// The settings that `[variant.NAME]` and a candidate both have. A candidate's `bolt` is read with
/// its training.
pub const SETTINGS: [&str; 13] = [
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

/// The values of `linker`.
const LINKERS: [(&str, &str); 4] =
    [("lld", "lld"), ("gold", "gold"), ("bfd", "bfd"), ("mold", "mold")];

/// Reads all `[variant.NAME]`, each with its name; `None` for one with problems.
pub fn read_all(root: &mut Table<'_>) -> Vec<(String, Option<VariantOverrides>)> {
    let Some(mut all) = root.table("variant") else { return Vec::new() };
    let presets = Variant::names();
    let mut variants = Vec::new();
    for (name, table) in all.named_tables() {
        let overrides = read(table, &presets);
        if presets.iter().any(|preset| preset == name.value) {
            let message = format!("`{}` is the name of a preset", name.value);
            all.report(Problem::new(name.span, message).help("choose another name"));
        } else {
            let valid = names::of_variant(&all, name);
            variants.push((name.value.to_owned(), overrides.filter(|_| valid.is_some())));
        }
    }
    variants
}

fn read(mut table: Table<'_>, presets: &[String]) -> Option<VariantOverrides> {
    let base = read_base(&mut table, presets);
    let settings = read_settings(&mut table);
    let bolt = table.bool("bolt").map(|value| value.value);
    let compiler = if table.has("compiler") { build::read_compiler(&mut table) } else { None };
    let flags = build::read_flags(&mut table).unwrap_or_default();
    table.finish();
    Some(VariantOverrides { base: base?, compiler, flags, bolt, ..settings })
}

/// Reads the keys of [`SETTINGS`].
pub fn read_settings(table: &mut Table<'_>) -> VariantOverrides {
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
    let problem = Problem::new(native.span, "`native` must be true");
    table.report(problem.help("remove it, or set `march` and `mtune`"));
    None
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
    table.report(Problem::new(base.span, message).help(help_of_unknown(base.value, names)));
    None
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
        table.report(Problem::new(name.span, message).help("write it as for the compiler"));
        return None;
    }
    Some(name.value.to_owned())
}
