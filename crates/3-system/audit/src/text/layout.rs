use dbdyno_units::grouped;

/// The column where a field's value begins.
const FIELD: usize = 13;

/// A text buffer with lines of limited width.
pub(super) struct Lines {
    text: String,
    pub(super) width: usize,
}

impl Lines {
    pub(super) const fn new(width: usize) -> Self {
        Self { text: String::new(), width }
    }

    pub(super) fn into_text(self) -> String {
        self.text
    }

    pub(super) fn blank(&mut self) {
        self.text.push('\n');
    }

    /// Appends a line; wraps it if it is too long.
    pub(super) fn line(&mut self, line: &str) {
        if line.chars().count() <= self.width {
            self.text.push_str(line.trim_end());
            self.text.push('\n');
        } else {
            self.wrapped("", line);
        }
    }

    /// Appends a name and its value.
    pub(super) fn field(&mut self, name: &str, value: &str) {
        self.wrapped(&format!("  {name:<width$}", width = FIELD - 2), value);
    }

    /// Appends words after a prefix, wrapped, with continuation lines indented by the prefix's
    /// width. A word that is longer than a line is split.
    pub(super) fn wrapped(&mut self, prefix: &str, words: &str) {
        let indent = " ".repeat(prefix.chars().count());
        let room = self.width.saturating_sub(indent.len()).max(10);
        let mut start = prefix.to_owned();
        let mut line = String::new();
        let mut flush = |line: &mut String, start: &mut String| {
            self.text.push_str(format!("{start}{line}").trim_end());
            self.text.push('\n');
            start.clone_from(&indent);
            line.clear();
        };
        for word in words.split_whitespace() {
            let mut word = word.to_owned();
            let used = line.chars().count();
            if used > 0 && used + 1 + word.chars().count() > room {
                flush(&mut line, &mut start);
            }
            while word.chars().count() > room {
                let (head, tail): (String, String) =
                    (word.chars().take(room).collect(), word.chars().skip(room).collect());
                line = head;
                flush(&mut line, &mut start);
                word = tail;
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(&word);
        }
        flush(&mut line, &mut start);
    }

    pub(super) fn rule(&mut self) {
        self.text.push_str(&"─".repeat(self.width));
        self.text.push('\n');
    }
}

/// `1 object`, `2 objects`.
pub(super) fn counted(count: usize, what: &str) -> String {
    let number = grouped(count as u64);
    if count == 1 { format!("{number} {what}") } else { format!("{number} {what}s") }
}

/// Shortens a name to `room` characters, keeping the end, which is more specific.
pub(super) fn shortened(name: &str, room: usize) -> String {
    let length = name.chars().count();
    if length <= room {
        return name.to_owned();
    }
    let tail: String = name.chars().skip(length - room.saturating_sub(1)).collect();
    format!("…{tail}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrapped_splits_long_words_at_line_width() {
        let mut lines = Lines::new(60);
        lines.field("flags", &format!("-O2 {} -g", "x".repeat(130)));
        let text = lines.into_text();
        assert!(text.lines().all(|line| line.chars().count() <= 60), "{text}");
        assert_eq!(text.matches('x').count(), 130);
    }

    #[test]
    fn objects_are_counted_and_names_shortened() {
        assert_eq!(counted(1, "object"), "1 object");
        assert_eq!(shortened("storage/innobase", 9), "…innobase");
    }
}
