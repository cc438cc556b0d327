//! Elements used throughout the page.

use std::fmt::Display;

use maud::{Markup, html};

/// A name in which lines may break after `_`, `-`, `.`, `+` and `/`, and nowhere else.
pub(crate) fn breakable(name: &str) -> Markup {
    html! {
        @for (index, part) in name.split_inclusive(['_', '-', '.', '+', '/']).enumerate() {
            @if index > 0 { wbr; }
            (part)
        }
    }
}

/// A section with a heading that names it for screen readers.
pub(crate) fn section(id: &str, title: &str, content: Markup) -> Markup {
    html! {
        section id=(id) aria-labelledby={ "h-" (id) } {
            h2 id={ "h-" (id) } { (title) }
            (content)
        }
    }
}

/// A box with content that may be wider than the window. `label` names it for screen readers.
pub(crate) fn scrollable(label: &str, content: Markup) -> Markup {
    scrollable_with("", label, content)
}

/// The same with a class of the frame.
pub(crate) fn scrollable_with(class: &str, label: &str, content: Markup) -> Markup {
    let space = if class.is_empty() { "" } else { " " };
    html! {
        div class={ "scroll" (space) (class) } tabindex="0" role="region" aria-label=(label) {
            (content)
        }
    }
}

/// A list of labels with their values.
pub(crate) fn pairs<V: AsRef<str>>(pairs: &[(String, V)]) -> Markup {
    html! {
        @for (label, value) in pairs {
            div { dt { (breakable(label)) } dd { (value.as_ref()) } }
        }
    }
}

/// The value, or a dash where it is unknown.
pub(crate) fn or_dash(value: Option<impl Display>) -> String {
    value.map_or_else(|| "–".to_owned(), |value| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn breakable_name_is_escaped_and_keeps_its_text() {
        let markup = breakable("a<b_c+d").into_string();
        assert_eq!(markup, "a&lt;b_<wbr>c+<wbr>d");
    }
}
