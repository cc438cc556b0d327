//! The history of a git repository, in a clone in the cache.
//!
//! The clone has all commits of all branches and tags, so that a commit is fetched from the network
//! once, however many of its ancestors are compiled. Nothing is written to the repository itself.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use serde::{Deserialize, Serialize};

use crate::error::io_error;
use crate::fetching::{Fetching, Tool};
use crate::store::{Kind, Lock, Sharing, make_private, remove_whole};
use crate::{BuildError, Cache, Sha256, trusted_tree};

/// The fewest digits by which a commit is named.
const FEWEST_DIGITS: usize = 7;

/// Digits of a full commit hash, SHA-1 or SHA-256.
const FULL_HASHES: [usize; 2] = [40, 64];

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Commit {
    pub id: String,
    /// The full hashes of its parents; with first-parent history at most one.
    pub parents: Vec<String>,
    /// When it was written, ISO 8601.
    pub author_date: String,
    /// The first line of its message.
    pub subject: String,
}

impl Commit {
    /// The first ten digits, for people.
    pub fn short(&self) -> &str {
        self.id.get(..10).unwrap_or(&self.id)
    }
}

/// A range of a repository's history.
#[derive(Clone, Copy, Debug)]
pub struct RangeRequest<'a> {
    /// The repository: a URL or a path.
    pub url: &'a str,
    pub good: &'a str,
    /// The last revision of the range.
    pub bad: &'a str,
    /// Whether only the first parent of each merge is followed.
    pub first_parent: bool,
}

/// The commits after `good` up to `bad`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitRange {
    pub good: Commit,
    /// The commits that `bad` has and `good` does not have, each after its parents. The last one is
    /// `bad`.
    pub commits: Vec<Commit>,
}

#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    #[error(transparent)]
    Fetch(#[from] BuildError),
    /// The revisions are not the ends of a range.
    #[error("{0}")]
    Revisions(String),
}

const GIT: Tool = Tool { program: "git", package: "git" };

/// Options for every command: hooks and monitors that the user's configuration names are not run,
/// and nothing runs in the background after a command.
const OPTIONS: [&str; 8] = [
    "-c",
    "core.hooksPath=/dev/null",
    "-c",
    "core.fsmonitor=false",
    "-c",
    "gc.auto=0",
    "-c",
    "maintenance.auto=false",
];

/// Runs git in a directory and returns its output.
pub(super) fn git(
    fetching: &Fetching<'_>,
    doing: &str,
    dir: &Path,
    args: &[&str],
) -> Result<String, BuildError> {
    fetching.run(GIT, doing, dir, &[&OPTIONS, args].concat())
}

/// See [`super::Sources::commit_range`].
pub(super) fn commit_range(
    cache: &Cache,
    cancel: &AtomicBool,
    wanted: &RangeRequest<'_>,
    report: &(dyn Fn(String) + Sync),
) -> Result<CommitRange, HistoryError> {
    let revisions = [wanted.good, wanted.bad];
    if let Some(invalid) = revisions.into_iter().find(|revision| !is_valid(revision)) {
        return Err(HistoryError::Revisions(format!(
            "invalid revision `{}`: use a commit, a tag or a branch",
            invalid.escape_debug()
        )));
    }
    let url = wanted.url;
    let entry = cache.entry(Kind::Source, &clone_name(url));
    let what = format!("the history of {url}");
    let waiting = || report(format!("waiting for another dbdyno process to fetch {url}"));
    let lock = entry
        .lock(Sharing::Exclusive, cancel, waiting)?
        .ok_or_else(|| BuildError::cancelled(&what))?;
    let part = entry.folder.with_extension("part");
    let fetching = Fetching { what: &what, origin: url, part: &part, lock: &lock, cancel, report };
    make_private(&part).map_err(io_error("creating", &part))?;
    let clone = HistoryClone { fetching: &fetching, folder: entry.folder };
    let range = clone.update(url, revisions).and_then(|()| clone.range(wanted));
    let _ = fs::remove_dir_all(&part);
    range
}

/// A clone that has a commit, kept in the cache while it is in use.
pub(super) struct CloneInUse {
    pub path: String,
    _lock: Lock,
}

impl CloneInUse {
    /// The clone of a repository; `None` unless it exists and has the commit with this full hash.
    pub fn with_commit(
        fetching: &Fetching<'_>,
        cache: &Cache,
        url: &str,
        commit: &str,
    ) -> Result<Option<Self>, BuildError> {
        let entry = cache.entry(Kind::Source, &clone_name(url));
        if !(FULL_HASHES.contains(&commit.len()) && is_hexadecimal(commit) && entry.exists()) {
            return Ok(None);
        }
        let lock = entry
            .lock(Sharing::Shared, fetching.cancel, || {})?
            .ok_or_else(|| BuildError::cancelled(fetching.what))?;
        let clone = HistoryClone { fetching, folder: entry.folder };
        let is_usable = clone.is_trusted() && clone.resolve(commit)?.is_some();
        let path = clone.folder.to_str().filter(|_| is_usable);
        Ok(path.map(|path| Self { path: path.to_owned(), _lock: lock }))
    }
}

/// A bare clone, locked.
struct HistoryClone<'a> {
    fetching: &'a Fetching<'a>,
    folder: PathBuf,
}

impl HistoryClone<'_> {
    fn is_trusted(&self) -> bool {
        self.folder.is_dir() && trusted_tree::check(&self.folder).is_ok()
    }

    /// Makes the clone if there is none that can be trusted, and fetches what is new unless the
    /// revisions are known and cannot have changed.
    fn update(&self, url: &str, revisions: [&str; 2]) -> Result<(), HistoryError> {
        if !self.is_trusted() {
            remove_whole(&self.folder).map_err(io_error("removing", &self.folder))?;
            let new = self.fetching.part.join("inside");
            fs::create_dir(&new).map_err(io_error("creating", &new))?;
            let init = ["init", "--quiet", "--bare", "--template="];
            git(self.fetching, "making a repository for it", &new, &init)?;
            self.fetch(&new, url, revisions)?;
            fs::rename(&new, &self.folder).map_err(io_error("finishing", &self.folder))?;
            return Ok(());
        }
        for revision in revisions {
            if !self.is_fixed(revision)? {
                return Ok(self.fetch(&self.folder, url, revisions)?);
            }
        }
        Ok(())
    }

    fn fetch(&self, into: &Path, url: &str, revisions: [&str; 2]) -> Result<(), BuildError> {
        (self.fetching.report)(format!("fetching the history of {url}"));
        let mut args = vec!["--git-dir=.", "fetch", "--quiet", "--prune", "--no-tags", "--", url];
        args.extend(["+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*"]);
        // A repository may have no HEAD.
        if revisions.iter().any(|revision| base(revision) == "HEAD") {
            args.push("+HEAD:refs/remote/HEAD");
            let head = ["--git-dir=.", "symbolic-ref", "HEAD", "refs/remote/HEAD"];
            git(self.fetching, "preparing to fetch it", into, &head)?;
        }
        git(self.fetching, "fetching it", into, &args)?;
        // Single commits are fetched from the clone, see [`CloneInUse`].
        let config = ["--git-dir=.", "config", "uploadpack.allowAnySHA1InWant", "true"];
        git(self.fetching, "preparing it", into, &config)?;
        trusted_tree::discard_permissions(into)
            .map_err(io_error("setting permissions in", into))?;
        Ok(())
    }

    fn git(&self, doing: &str, args: &[&str]) -> Result<String, BuildError> {
        git(self.fetching, doing, &self.folder, &[&["--git-dir=."], args].concat())
    }

    /// The hash of the commit that a revision names; `None` if it is unknown.
    fn resolve(&self, revision: &str) -> Result<Option<String>, BuildError> {
        let commit = format!("{revision}^{{commit}}");
        let text =
            self.succeeds("looking for it", &["rev-parse", "--verify", "--quiet", &commit])?;
        let is_hash = |line: &&str| FULL_HASHES.contains(&line.len()) && is_hexadecimal(line);
        Ok(text.and_then(|text| text.lines().find(is_hash).map(str::to_owned)))
    }

    /// The output of a command; `None` if its exit code is not 0.
    fn succeeds(&self, doing: &str, args: &[&str]) -> Result<Option<String>, BuildError> {
        match self.git(doing, args) {
            Err(error) if error.is_fetching("") => Ok(None),
            other => other.map(Some),
        }
    }

    /// Whether a revision is known and does not change: a commit, a tag, or an ancestor of one.
    fn is_fixed(&self, revision: &str) -> Result<bool, BuildError> {
        let base = base(revision);
        let is_hash = base.len() >= FEWEST_DIGITS && is_hexadecimal(base);
        // A branch may have a name of such digits, too.
        let digits = base.to_ascii_lowercase();
        if is_hash && self.resolve(base)?.is_some_and(|id| id.starts_with(&digits)) {
            return Ok(true);
        }
        Ok(self.resolve(&format!("refs/tags/{base}"))?.is_some())
    }

    fn range(&self, wanted: &RangeRequest<'_>) -> Result<CommitRange, HistoryError> {
        let commit = |revision: &str| {
            let url = wanted.url;
            self.resolve(revision)?.ok_or_else(|| {
                HistoryError::Revisions(format!(
                    "unknown revision `{revision}` in {url}: use a commit of one of its branches, a \
                     tag or a branch; `git ls-remote {url}` lists tags and branches"
                ))
            })
        };
        let (good, bad) = (commit(wanted.good)?, commit(wanted.bad)?);
        if good == bad {
            return Err(HistoryError::Revisions(format!(
                "good and bad are the same commit, {good}: name two revisions between which it \
                 changed"
            )));
        }
        if !self.is_ancestor(&good, &bad)? {
            let advice = if self.is_ancestor(&bad, &good)? {
                ", but the reverse: exchange --good and --bad. Whether the change made it slower \
                 or faster does not matter"
            } else {
                ": choose a good revision in the history of bad, such as that of `git merge-base`"
            };
            return Err(HistoryError::Revisions(format!(
                "good ({}) is not an ancestor of bad ({}){advice}",
                wanted.good, wanted.bad
            )));
        }
        let range = format!("{good}..{bad}");
        let mut args = vec!["--topo-order", "--reverse", &range];
        args.extend(wanted.first_parent.then_some("--first-parent"));
        let mut commits = self.list(&args)?;
        if wanted.first_parent {
            commits.iter_mut().for_each(|commit| commit.parents.truncate(1));
        }
        let incomplete = || {
            let name = clone_name(wanted.url);
            let advice =
                format!("remove the clone with `dbdyno builds clean {name}`, and try again");
            self.fetching.failed("reading it", "git did not list all commits", advice)
        };
        let good = self.list(&["--max-count=1", &good])?.pop().ok_or_else(incomplete)?;
        if commits.last().is_none_or(|last| last.id != bad) {
            return Err(incomplete().into());
        }
        Ok(CommitRange { good, commits })
    }

    fn is_ancestor(&self, first: &str, second: &str) -> Result<bool, BuildError> {
        let args = ["merge-base", "--is-ancestor", first, second];
        Ok(self.succeeds("comparing revisions", &args)?.is_some())
    }

    fn list(&self, args: &[&str]) -> Result<Vec<Commit>, BuildError> {
        let format = "--format=%H%x09%P%x09%aI%x09%s";
        let args = [&["rev-list", format], args, &["--"]].concat();
        Ok(commits_in(&self.git("listing its commits", &args)?))
    }
}

/// The commits in the output of `rev-list`, which has other lines, too.
fn commits_in(text: &str) -> Vec<Commit> {
    let commit = |line: &str| {
        let mut fields = line.splitn(4, '\t');
        let id = fields.next().filter(|id| FULL_HASHES.contains(&id.len()))?;
        let parents = fields.next()?.split_whitespace().map(str::to_owned).collect();
        let (author_date, subject) = (fields.next()?.to_owned(), fields.next()?.to_owned());
        is_hexadecimal(id).then(|| Commit { id: id.to_owned(), parents, author_date, subject })
    };
    text.lines().filter_map(commit).collect()
}

/// The commit, tag or branch in a revision such as `v1.2~3`.
fn base(revision: &str) -> &str {
    revision.split(['~', '^']).next().unwrap_or(revision)
}

/// Whether git does not take a revision for an option or for a range.
fn is_valid(revision: &str) -> bool {
    !revision.is_empty()
        && !revision.starts_with(['-', '^'])
        && !revision.contains("..")
        && !revision.contains(char::is_control)
}

fn is_hexadecimal(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The name of a clone in the directory of sources.
fn clone_name(url: &str) -> String {
    format!("history-{}", &Sha256::of(url.as_bytes()).to_string()[..16])
}

#[cfg(test)]
mod tests {
    use dbdyno_fuzz::Fuzz;

    use super::*;

    const LISTED: &str = "commit 1111111111111111111111111111111111111111\n\
        1111111111111111111111111111111111111111\t\t2024-01-02T03:04:05+01:00\tfirst\tone\n\
        warning: something\n\
        2222222222222222222222222222222222222222\t1111111111111111111111111111111111111111 \
        3333333333333333333333333333333333333333\t2024-01-03T03:04:05Z\t\n";

    #[test]
    fn listed_commits_have_parents_date_and_subject() {
        let commits = commits_in(LISTED);
        let [first, merge] = &commits[..] else { panic!("{commits:?}") };
        assert_eq!((first.short(), first.subject.as_str()), ("1111111111", "first\tone"));
        assert!(first.parents.is_empty() && first.author_date.starts_with("2024-01-02T"));
        assert_eq!((merge.parents.len(), merge.subject.as_str()), (2, ""));
    }

    #[test]
    fn damaged_lists_of_commits_are_read() {
        Fuzz::new(vec![LISTED.into()]).words(&["\n", "\t", "commit "]).run(|text| {
            let commits = commits_in(&String::from_utf8_lossy(text));
            assert!(commits.iter().all(|commit| is_hexadecimal(&commit.id)));
        });
    }

    #[test]
    fn options_and_ranges_are_no_revisions() {
        for revision in ["v1.2", "main~3", "a/b", "HEAD^2", "0123abc"] {
            assert!(is_valid(revision), "{revision}");
        }
        for revision in ["", "-x", "--output=/tmp/x", "^main", "a..b", "a\nb"] {
            assert!(!is_valid(revision), "{revision}");
        }
        assert_eq!([base("v1.2~3^2"), base("HEAD")], ["v1.2", "HEAD"]);
    }
}
