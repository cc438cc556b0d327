//! Experiments of less than a second.

/// The contents of an experiment file.
#[derive(Clone, Copy, Debug)]
pub struct Experiment<'a> {
    pub control: bool,
    pub rows: u32,
    pub clients: &'a [u32],
    /// The list in the file, without brackets.
    pub microbenchmarks: &'a str,
    /// Time of each candidate per microbenchmark; the target cannot be reached before.
    pub budget: &'a str,
    pub restarts: u32,
    pub min_blocks: u32,
    /// Additional lines under `[schedule]`.
    pub schedule: &'a str,
    /// Names and additional lines. The first is the baseline.
    pub candidates: &'a [(&'a str, &'a str)],
    /// Additional sections at the end.
    pub more: &'a str,
}

impl Default for Experiment<'_> {
    /// A baseline and the same build again, on one read-only microbenchmark.
    fn default() -> Self {
        Self {
            control: false,
            rows: 2_000,
            clients: &[1],
            microbenchmarks: "\"hot-points*\"",
            budget: "20ms",
            restarts: 1,
            min_blocks: 6,
            schedule: "",
            candidates: &[("base", ""), ("other", "")],
            more: "",
        }
    }
}

impl Experiment<'_> {
    /// The text of the file.
    pub fn text(&self) -> String {
        let Self { control, rows, clients, microbenchmarks, budget, restarts, min_blocks, .. } =
            self;
        let baseline = self.candidates[0].0;
        let mut text = format!(
            "name = \"test\"\nbaseline = \"{baseline}\"\ncontrol = {control}\n\n\
             [workload]\nrows = {rows}\nclients = {clients:?}\n\
             microbenchmarks = [{microbenchmarks}]\n\n\
             [schedule]\nslice = \"2ms\"\nmin_blocks = {min_blocks}\nrestarts = {restarts}\n\
             target = \"0.01%\"\nbudget = \"{budget}\"\n{}\n\n",
            self.schedule
        );
        for (name, lines) in self.candidates {
            text.push_str(&format!(
                "[[candidate]]\nname = \"{name}\"\nsystem = \"sqlite\"\nvariant = \"o0\"\n{lines}\n"
            ));
        }
        text.push_str(self.more);
        text
    }
}
