//! npm registries: the public one, or that of the user's `.npmrc`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use dbdyno_types::NpmPackage;
use dbdyno_units::Bytes;
use serde::Deserialize;

use super::{Remote, Variable, address, expanded, home, read_existing, variable};
use crate::BuildError;
use crate::download::{Access, Algorithm, Checksum, Question};
use crate::fetching::Fetching;

const PUBLIC: &str = "https://registry.npmjs.org";

/// A short description of all versions, or a long one if the registry has no other.
const ACCEPT: &str = "application/vnd.npm.install-v1+json; q=1.0, application/json; q=0.8";

const MOST_OF_DESCRIPTION: Bytes = Bytes::from_mib(64);

/// What a registry tells about a package.
#[derive(Deserialize)]
struct Description {
    #[serde(default)]
    versions: BTreeMap<String, Version>,
}

#[derive(Deserialize)]
struct Version {
    dist: Distribution,
}

#[derive(Deserialize)]
struct Distribution {
    tarball: String,
    integrity: Option<String>,
    /// SHA-1.
    shasum: Option<String>,
}

impl Distribution {
    fn checksum(&self) -> Option<Checksum> {
        let integrity = self.integrity.as_deref().and_then(Checksum::from_integrity);
        let shasum = self.shasum.as_deref();
        integrity.or_else(|| Checksum::from_text(Algorithm::Sha1, shasum?))
    }
}

/// Where a package is, and its checksum.
pub(super) fn locate(
    fetching: &Fetching<'_>,
    package: &NpmPackage,
    known: Option<Checksum>,
) -> Result<Remote, BuildError> {
    let doing = "asking the registry";
    let advice = "correct `registry` in the settings of npm";
    let settings = Settings::of(&read_existing(settings_files())?, &variable);
    let invalid = |reason: String| fetching.failed(doing, reason, advice);
    let registry = settings.registry(package.scope()).map_err(invalid)?;
    let access = settings.access(&registry).map_err(invalid)?;
    let url = format!("{registry}/{}", package.name().replace('/', "%2f"));
    let question =
        Question { url: &url, access: &access, accept: ACCEPT, most: MOST_OF_DESCRIPTION };
    let name = package.name();
    let Some(answer) = question.ask(fetching, doing)? else {
        let reason = format!("{registry} has no package {name}");
        return Err(fetching.failed(doing, reason, "check its name"));
    };
    let mut description: Description = serde_json::from_slice(&answer)
        .map_err(|error| invalid(format!("{url} describes no package: {error}")))?;
    let Some(Version { dist }) = description.versions.remove(package.version()) else {
        let reason = format!("{name} has no version {}", package.version());
        return Err(fetching.failed(
            doing,
            reason,
            format!("`npm view {name} versions` shows all"),
        ));
    };
    let Some(checksum) = known.or_else(|| dist.checksum()) else {
        let reason = format!("{registry} has no checksum of {package}");
        return Err(fetching.failed(doing, reason, "add its `sha256`"));
    };
    // As npm does: a mirror may have copied the addresses of the public registry.
    let url = match dist.tarball.strip_prefix(PUBLIC).filter(|path| path.starts_with('/')) {
        Some(path) => format!("{registry}{path}"),
        None => dist.tarball,
    };
    let url = address(&url).map_err(invalid)?.to_owned();
    if url.starts_with("file:") && !registry.starts_with("file:") {
        return Err(invalid(format!("{registry} names the local file {url}")));
    }
    // Another server gets no password but its own, and none without encryption.
    let is_same = url.strip_prefix(&registry).is_some_and(|path| path.starts_with('/'));
    let access = match is_same {
        true => access,
        false if url.starts_with("https:") => settings.access(&url).map_err(invalid)?,
        false => Access::default(),
    };
    let (name, version) = (name.to_owned(), package.version().to_owned());
    Ok(Remote { url, access, checksum, name, version })
}

/// The settings of the user, then those of the machine.
fn settings_files() -> Vec<PathBuf> {
    let named = setting_of_environment("userconfig", &variable).map(PathBuf::from);
    let own = named.or_else(|| home().map(|home| home.join(".npmrc")));
    let of_machine = ["/usr/local/etc/npmrc", "/usr/etc/npmrc", "/etc/npmrc"].map(PathBuf::from);
    own.into_iter().chain(of_machine).collect()
}

fn setting_of_environment(name: &str, variable: Variable<'_>) -> Option<String> {
    let upper = format!("NPM_CONFIG_{}", name.to_ascii_uppercase());
    variable(&format!("npm_config_{name}")).or_else(|| variable(&upper))
}

/// Keys and values of `.npmrc`.
struct Settings(BTreeMap<String, String>);

impl Settings {
    /// The first text counts most, after the environment.
    fn of(texts: &[(PathBuf, String)], variable: Variable<'_>) -> Self {
        let mut all = BTreeMap::new();
        if let Some(registry) = setting_of_environment("registry", variable) {
            all.insert("registry".to_owned(), registry);
        }
        for line in texts.iter().flat_map(|(_, text)| text.lines()).map(str::trim) {
            if line.starts_with(['#', ';', '[']) {
                continue;
            }
            let Some((key, value)) = line.split_once('=') else { continue };
            let value = value.trim().trim_matches(['"', '\'']);
            let key = expanded(key.trim(), "", variable);
            all.entry(key).or_insert_with(|| expanded(value, "", variable));
        }
        Self(all)
    }

    /// The address of the registry for packages of a scope.
    fn registry(&self, scope: Option<&str>) -> Result<String, String> {
        let of_scope = scope.and_then(|scope| self.0.get(&format!("{scope}:registry")));
        let registry = of_scope.or_else(|| self.0.get("registry"));
        address(registry.map_or(PUBLIC, String::as_str)).map(str::to_owned)
    }

    /// The access to a registry: that of the longest path that has one.
    fn access(&self, registry: &str) -> Result<Access, String> {
        let (_, rest) = registry.split_once("://").unwrap_or_default();
        let mut path = rest;
        while !path.is_empty() {
            let get = |key: &str| {
                let names = [format!("//{path}/:{key}"), format!("//{path}:{key}")];
                names.iter().find_map(|name| self.0.get(name))
            };
            if let Some(token) = get("_authToken") {
                return Ok(Access::authorization(&format!("Bearer {token}")));
            }
            if let Some(coded) = get("_auth") {
                return Ok(Access::authorization(&format!("Basic {coded}")));
            }
            if let (Some(user), Some(coded)) = (get("username"), get("_password")) {
                let decoded = BASE64_STANDARD.decode(coded).ok();
                let password = decoded.and_then(|bytes| String::from_utf8(bytes).ok());
                let password = password.ok_or("`_password` must be coded with base64")?;
                return Ok(Access::of_user(user, &password));
            }
            path = path.rsplit_once('/').map_or("", |(shorter, _)| shorter);
        }
        Ok(Access::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(texts: &[&str]) -> Settings {
        let variable = |name: &str| (name == "TOKEN").then(|| "secret".to_owned());
        let texts: Vec<(PathBuf, String)> =
            texts.iter().map(|text| (".npmrc".into(), (*text).to_owned())).collect();
        Settings::of(&texts, &variable)
    }

    #[test]
    fn registry_of_the_user_is_used() {
        let none = settings(&[]);
        assert_eq!(none.registry(Some("@a")).unwrap(), PUBLIC);
        assert_eq!(none.access(PUBLIC), Ok(Access::default()));
        let own = settings(&[
            "; mine\nregistry = \"https://mirror.example/npm/\"\n@a:registry=https://a.example\n\
             //mirror.example/npm/:_authToken=${TOKEN}\n//a.example/:_auth=bWU6cHc=\n",
            "registry=https://other.example\n",
        ]);
        let registry = own.registry(None).unwrap();
        assert_eq!(registry, "https://mirror.example/npm");
        assert_eq!(own.access(&registry), Ok(Access::authorization("Bearer secret")));
        assert_eq!(own.registry(Some("@a")).unwrap(), "https://a.example");
        let basic = Ok(Access::authorization("Basic bWU6cHc="));
        assert_eq!(own.access("https://a.example"), basic);
        // Also for paths below, but not for another server.
        assert_eq!(own.access("https://a.example/more/npm"), basic);
        assert_eq!(own.access("https://a.example.org"), Ok(Access::default()));
    }

    #[test]
    fn environment_counts_more_than_files() {
        let variable =
            |name: &str| (name == "npm_config_registry").then(|| "https://e.example".to_owned());
        let texts = [(".npmrc".into(), "registry=https://other.example".to_owned())];
        let registry = Settings::of(&texts, &variable).registry(None);
        assert_eq!(registry.unwrap(), "https://e.example");
    }

    #[test]
    fn best_checksum_is_used() {
        let shasum = "a9993e364706816aba3e25717850c26c9cd0d89d";
        let of = |fields: &str| {
            let text = format!("{{\"tarball\": \"\", {fields}}}");
            serde_json::from_str::<Distribution>(&text).unwrap().checksum()
        };
        let sha1 = Checksum::from_text(Algorithm::Sha1, shasum);
        assert_eq!(of(&format!("\"shasum\": \"{shasum}\"")), sha1);
        let integrity = "\"integrity\": \"sha1-qZk+NkcGgWq6PiVxeFDCbJzQ2J0=\"";
        assert_eq!(of(integrity), sha1);
        assert_eq!(of("\"shasum\": \"none\""), None);
    }
}
