//! Differences between versions of MySQL's private servers, all in one table.

use super::mysql_config::version_numbers;

type Version = (u32, u32, u32);

/// The oldest version of private servers.
pub(crate) const OLDEST: (Version, &str) = ((5, 6, 0), "5.6");

/// The oldest version with `caching_sha2_password`.
pub(crate) const OLDEST_ON_NETWORK: Version = (8, 0, 4);

/// How a data directory is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Creation {
    /// `--bootstrap` executes the installation's scripts that create the system tables.
    Bootstrap,
    /// `--initialize-insecure` creates them.
    Initialize,
}

/// What depends on the version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct VersionFacts {
    pub(crate) creation: Creation,
    /// Whether `secure_file_priv = NULL` forbids statements to access files. Older servers need a directory.
    pub(crate) can_forbid_files: bool,
    pub(crate) has_query_cache: bool,
    pub(crate) has_x_protocol: bool,
    /// The number of files of the redo log; `None` if the server has `innodb_redo_log_capacity` instead.
    pub(crate) redo_log_files: Option<u64>,
    /// The default character set and its collation.
    pub(crate) charset: (&'static str, &'static str),
    /// The default of `innodb_checksum_algorithm`.
    pub(crate) checksums: &'static str,
    /// The largest value of `max_prepared_stmt_count`.
    pub(crate) most_prepared: u64,
}

const OLDEST_FACTS: VersionFacts = VersionFacts {
    creation: Creation::Bootstrap,
    can_forbid_files: false,
    has_query_cache: true,
    has_x_protocol: false,
    redo_log_files: Some(2),
    charset: ("latin1", "latin1_swedish_ci"),
    checksums: "innodb",
    most_prepared: 1_048_576,
};

/// A change since this version.
type Change = (Version, fn(&mut VersionFacts));

/// The changes, in the order of versions.
const CHANGES: &[Change] = &[
    ((5, 7, 6), |facts| facts.creation = Creation::Initialize),
    ((5, 7, 6), |facts| facts.can_forbid_files = true),
    ((5, 7, 7), |facts| facts.checksums = "crc32"),
    ((8, 0, 0), |facts| facts.charset = ("utf8mb4", "utf8mb4_0900_ai_ci")),
    ((8, 0, 0), |facts| facts.has_query_cache = false),
    ((8, 0, 0), |facts| facts.has_x_protocol = true),
    ((8, 0, 18), |facts| facts.most_prepared = 4_194_304),
    ((8, 0, 30), |facts| facts.redo_log_files = None),
];

impl VersionFacts {
    pub(crate) fn of(version: &str) -> Self {
        let numbers = version_numbers(version);
        let mut facts = OLDEST_FACTS;
        for (_, change) in CHANGES.iter().filter(|(since, _)| numbers >= *since) {
            change(&mut facts);
        }
        facts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_change_with_the_version() {
        let (old, new) = (VersionFacts::of("5.6.35"), VersionFacts::of("9.7.4"));
        assert_eq!(old, OLDEST_FACTS);
        assert_eq!((new.creation, new.redo_log_files), (Creation::Initialize, None));
        assert_eq!((new.charset.0, new.most_prepared), ("utf8mb4", 4_194_304));
        assert!(new.has_x_protocol && new.can_forbid_files && !new.has_query_cache);
        let between = VersionFacts::of("5.7.44-log");
        assert_eq!((between.creation, between.redo_log_files), (Creation::Initialize, Some(2)));
        assert_eq!((between.charset.0, between.checksums), ("latin1", "crc32"));
        assert!(VersionFacts::of("8.0.29").redo_log_files.is_some());
        assert!(VersionFacts::of("8.0.30-22").redo_log_files.is_none());
    }

    #[test]
    fn changes_are_in_the_order_of_versions() {
        assert!(CHANGES.is_sorted_by_key(|(since, _)| *since));
    }
}
