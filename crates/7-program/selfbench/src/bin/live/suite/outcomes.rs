//! The results of tests, as MariaDB's mysql-test-run and PostgreSQL's pg_regress print them.

use std::collections::BTreeMap;

/// The result of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TestOutcome {
    Passed,
    Failed,
    Skipped,
}

impl TestOutcome {
    pub const ALL: [Self; 3] = [Self::Passed, Self::Failed, Self::Skipped];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
        }
    }
}

/// The results of a suite by the name of the test.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcomes(BTreeMap<String, TestOutcome>);

impl Outcomes {
    /// Reads the output of a suite. The last result of a test counts: mysql-test-run repeats failed ones.
    pub fn parse(text: &str) -> Self {
        Self(text.lines().filter_map(|line| mysql_test(line).or_else(|| regress(line))).collect())
    }

    /// The number of tests.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The number of tests with this result.
    pub fn count(&self, outcome: TestOutcome) -> usize {
        self.0.values().filter(|one| **one == outcome).count()
    }

    /// A line for each test that has another result in `other`.
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let names: std::collections::BTreeSet<_> = self.0.keys().chain(other.0.keys()).collect();
        let text = |outcome: Option<&TestOutcome>| outcome.map_or("not run", |it| it.name());
        let both = names.into_iter().map(|name| (name, self.0.get(name), other.0.get(name)));
        both.filter(|(_, ours, theirs)| ours != theirs)
            .map(|(name, ours, theirs)| format!("{name}: {}, then {}", text(ours), text(theirs)))
            .collect()
    }
}

/// A line such as `main.alias 'innodb' w2 [ pass ]  12`.
fn mysql_test(line: &str) -> Option<(String, TestOutcome)> {
    let (test, rest) = line.split_once(" [ ")?;
    let outcome = match rest.split_once(" ]")?.0 {
        "pass" | "retry-pass" => TestOutcome::Passed,
        "fail" | "retry-fail" => TestOutcome::Failed,
        "skipped" | "disabled" => TestOutcome::Skipped,
        _ => return None,
    };
    // With several workers, the last word is the worker.
    let is_worker =
        |word: &str| word.strip_prefix('w').is_some_and(|number| number.parse::<u32>().is_ok());
    let words = test.split_whitespace().filter(|word| !is_worker(word));
    let name = words.collect::<Vec<_>>().join(" ");
    name.contains('.').then_some((name, outcome))
}

/// A line such as `     boolean                      ... ok           52 ms`, or since PostgreSQL 16
/// `ok 2         + boolean                                   52 ms`.
fn regress(line: &str) -> Option<(String, TestOutcome)> {
    if let Some((test, result)) = line.split_once(" ... ") {
        let test = test.trim().trim_start_matches("test ").trim();
        let outcome = match result.split_whitespace().next()? {
            "ok" => TestOutcome::Passed,
            "FAILED" | "failed" => TestOutcome::Failed,
            _ => return None,
        };
        return (!test.contains(' ')).then(|| (test.to_owned(), outcome));
    }
    let (outcome, rest) = match line.strip_prefix("not ok ") {
        Some(rest) => (TestOutcome::Failed, rest),
        None => (TestOutcome::Passed, line.strip_prefix("ok ")?),
    };
    let mut words = rest.split_whitespace();
    words.next()?.parse::<u32>().ok()?;
    let test = words.find(|word| !matches!(*word, "-" | "+"))?;
    Some((test.to_owned(), outcome))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Vec<(String, TestOutcome)> {
        Outcomes::parse(text).0.into_iter().collect()
    }

    fn one(name: &str, outcome: TestOutcome) -> (String, TestOutcome) {
        (name.to_owned(), outcome)
    }

    #[test]
    fn results_of_mysql_test_run() {
        let text = "worker[1] Using MTR_BUILD_THREAD 300\n\
                    main.1st                                 [ pass ]     10\n\
                    main.alter 'innodb'                      w2 [ pass ]    350\n\
                    main.acl                                 w1 [ fail ]\n\
                    main.acl                                 w1 [ retry-pass ]    350\n\
                    main.aria                                w1 [ skipped ]  No Aria\n\
                    main.big                                 [ fail ]  timeout after 900 seconds\n\
                    Completed: Failed 1/5 tests, 80.0% were successful.\n";
        assert_eq!(
            parsed(text),
            [
                one("main.1st", TestOutcome::Passed),
                one("main.acl", TestOutcome::Passed),
                one("main.alter 'innodb'", TestOutcome::Passed),
                one("main.aria", TestOutcome::Skipped),
                one("main.big", TestOutcome::Failed),
            ]
        );
    }

    #[test]
    fn results_of_pg_regress() {
        let text = "============== running regression test queries ==============\n\
                    test tablespace                   ... ok          351 ms\n\
                    parallel group (2 tests):  char boolean\n     boolean                      \
                    ... ok           52 ms\n     char                         ... FAILED       30 ms\n\
                    ok 3         - strings                                   41 ms\n\
                    not ok 4     + money                                     12 ms\n\
                    # 1 of 4 tests failed.\n";
        assert_eq!(
            parsed(text),
            [
                one("boolean", TestOutcome::Passed),
                one("char", TestOutcome::Failed),
                one("money", TestOutcome::Failed),
                one("strings", TestOutcome::Passed),
                one("tablespace", TestOutcome::Passed),
            ]
        );
    }

    #[test]
    fn differences_name_tests_and_both_results() {
        let original =
            Outcomes::parse("main.a [ pass ] 1\nmain.b [ pass ] 1\nmain.c [ skipped ]\n");
        let optimized = Outcomes::parse("main.a [ pass ] 9\nmain.b [ fail ]\nmain.d [ pass ] 2\n");
        assert_eq!(
            original.differences(&optimized),
            [
                "main.b: passed, then failed",
                "main.c: skipped, then not run",
                "main.d: not run, then passed"
            ]
        );
        assert!(original.differences(&original).is_empty());
    }
}
