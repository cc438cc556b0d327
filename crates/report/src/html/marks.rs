//! What stands for a candidate in charts: a colour and a shape, so that neither is needed alone.

use crate::model::Role;

/// Colours in the style sheet: `k0` to `k5`, and `kc` for the control.
const COLOURS: usize = 6;

/// Shapes centred on the origin. There is one more of them than colours: the pairs repeat only
/// after 42 candidates.
const SHAPES: [&str; 7] = [
    "M-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0z",
    "M-4 -4h8v8h-8z",
    "M0 -5.6L5.6 0L0 5.6L-5.6 0z",
    "M0 -5L5 4H-5z",
    "M0 5L5 -4H-5z",
    "M-1.8 -5h3.6v3.2h3.2v3.6h-3.2v3.2h-3.6v-3.2h-3.2v-3.6h3.2z",
    "M-5 -4.5L0 0L5 -4.5V4.5L0 0L-5 4.5z",
];

/// The class that sets a candidate's colour.
pub(crate) fn class(place: usize, role: Role) -> String {
    match role {
        Role::Control => "kc".to_owned(),
        Role::Baseline => "kb".to_owned(),
        Role::Candidate => format!("k{}", place % COLOURS),
    }
}

/// The name of a candidate's shape in the page's definitions.
pub(crate) fn shape(place: usize, role: Role) -> String {
    match role {
        Role::Control => "m-c".to_owned(),
        Role::Baseline => "m-b".to_owned(),
        Role::Candidate => format!("m-{}", place % SHAPES.len()),
    }
}

/// The shapes, drawn once and used everywhere.
pub(crate) fn definitions() -> String {
    let mut out =
        String::from("<svg class=\"defs\" aria-hidden=\"true\" width=\"0\" height=\"0\"><defs>");
    for (place, path) in SHAPES.iter().enumerate() {
        out.push_str(&format!("<path id=\"m-{place}\" d=\"{path}\"/>"));
    }
    out.push_str("<path id=\"m-c\" d=\"M-4 -4L4 4M4 -4L-4 4\" fill=\"none\" stroke-width=\"2\"/>");
    out.push_str("<path id=\"m-b\" d=\"M0 -6V6\" fill=\"none\" stroke-width=\"2.5\"/>");
    out.push_str("<path id=\"m-less\" d=\"M5 -3.5L1 0L5 3.5\" fill=\"none\"/>");
    out.push_str("<path id=\"m-more\" d=\"M-5 -3.5L-1 0L-5 3.5\" fill=\"none\"/>");
    out.push_str("</defs></svg>\n");
    out
}

/// A candidate's mark beside its name.
pub(crate) fn inline(place: usize, role: Role) -> String {
    format!(
        "<svg class=\"mark {}\" viewBox=\"-7 -7 14 14\" aria-hidden=\"true\"><use href=\"#{}\"/></svg>",
        class(place, role),
        shape(place, role)
    )
}
