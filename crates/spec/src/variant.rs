//! `[variant.NAME]`: compiler settings that an experiment defines.

use dbdyno_document::{Problem, Spanned, Table, did_you_mean};

use crate::experiment::VariantSettings;
use crate::{Known, build, names};

/// The words that a setting can have.
const BUILD_TYPES: [&str; 2] = ["Release", "RelWithDebInfo"];
const OPTIMIZATIONS: [&str; 7] = ["O0", "O1", "O2", "O3", "Os", "Og", "Ofast"];
const LTO: [&str; 4] = ["off", "full", "thin", "fat"];
const HARDENING: [&str; 3] = ["default", "on", "off"];
const PACKAGING: [&str; 3] = ["none", "flags", "flags-with-lto"];

/// Reads all sections; each variant with its name.
pub fn read_all(root: &mut Table<'_>, known: &Known<'_>) -> Vec<(String, VariantSettings)> {
    let Some(mut all) = root.table("variant") else { return Vec::new() };
    let mut variants = Vec::new();
    for (name, table) in all.named_tables() {
        let settings = read(table, known);
        if known.variants.contains(&name.value) {
            let message = format!("`{}` is a built-in variant", name.value);
            let help = "choose another name: it would not mean what it means in the studies";
            all.report(Problem::new(name.span, message).help(help));
        } else if let Some(name) = names::of_variant(&all, name)
            && let Some(settings) = settings
        {
            variants.push((name.to_owned(), settings));
        }
    }
    variants
}

fn read(mut table: Table<'_>, known: &Known<'_>) -> Option<VariantSettings> {
    let base = read_base(&mut table, known);
    let mut word = |key, words: &[&'static str]| {
        let words: Vec<(&'static str, &'static str)> = words.iter().map(|w| (*w, *w)).collect();
        table.choice(key, &words).map(|word| word.value.to_owned())
    };
    let settings = VariantSettings {
        base: String::new(),
        build_type: word("build_type", &BUILD_TYPES),
        optimization: word("optimization", &OPTIMIZATIONS),
        lto: word("lto", &LTO),
        hardening: word("hardening", &HARDENING),
        packaging: word("packaging", &PACKAGING),
        debug: table.bool("debug").map(|value| value.value),
        assertions: table.bool("assertions").map(|value| value.value),
        frame_pointers: table.bool("frame_pointers").map(|value| value.value),
        march: read_name(&mut table, "march"),
        mtune: read_name(&mut table, "mtune"),
        linker: read_name(&mut table, "linker"),
        compiler: if table.has("compiler") { build::read_compiler(&mut table) } else { None },
        flags: build::read_flags(&mut table).unwrap_or_default(),
    };
    table.finish();
    Some(VariantSettings { base: base?, ..settings })
}

fn read_base(table: &mut Table<'_>, known: &Known<'_>) -> Option<String> {
    let Some(base) = table.string("base") else {
        return (!table.has("base")).then(|| "rel".to_owned());
    };
    if known.variants.contains(&base.value) {
        return Some(base.value.to_owned());
    }
    let message = format!("`{}` is no built-in variant", base.value);
    let help = did_you_mean(base.value, known.variants);
    table.report(Problem::new(base.span, message).help(help));
    None
}

/// The name of a CPU or a linker, which becomes part of a flag.
fn read_name(table: &mut Table<'_>, key: &'static str) -> Option<String> {
    let name: Spanned<&str> = table.string(key)?;
    let valid = |c: char| c.is_ascii_alphanumeric() || "-_.+/".contains(c);
    if name.value.is_empty() || !name.value.chars().all(valid) {
        let message = format!("`{}` cannot be the value of `{key}`", name.value);
        table.report(Problem::new(name.span, message).help("write it as the compiler does"));
        return None;
    }
    Some(name.value.to_owned())
}
