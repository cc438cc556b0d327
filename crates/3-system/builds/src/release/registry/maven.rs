//! Maven repositories: the central one, or a mirror that the user's settings name.

use std::path::{Path, PathBuf};

use dbdyno_types::MavenArtifact;
use dbdyno_units::Bytes;
use serde::Deserialize;

use super::{Remote, Variable, address, expanded, home, read_existing, variable};
use crate::BuildError;
use crate::download::{Access, Algorithm, Checksum, Question};
use crate::fetching::Fetching;

/// The name of the central repository in settings, and its address.
const CENTRAL: (&str, &str) = ("central", "https://repo.maven.apache.org/maven2");

const MOST_OF_CHECKSUM: Bytes = Bytes::from_kib(4);

/// Where an artifact is, and its checksum; asks the repository for it if none is known.
pub(super) fn locate(
    fetching: &Fetching<'_>,
    artifact: &MavenArtifact,
    known: Option<Checksum>,
) -> Result<Remote, BuildError> {
    let texts = read_existing(settings_files())?;
    let (base, access) = repository(&texts, &variable).map_err(|reason| {
        let advice = "correct the settings of Maven";
        fetching.failed("looking for the repository", reason, advice)
    })?;
    let url = format!("{base}/{}", artifact.path());
    let checksum = match known {
        Some(known) => known,
        None => published_checksum(fetching, &url, &access)?,
    };
    let (name, version) = (artifact.file_name(), artifact.version().to_owned());
    Ok(Remote { url, access, checksum, name, version })
}

/// The best checksum that is beside an artifact.
fn published_checksum(
    fetching: &Fetching<'_>,
    url: &str,
    access: &Access,
) -> Result<Checksum, BuildError> {
    let doing = "asking for its checksum";
    for of in Algorithm::ALL {
        let url = format!("{url}.{}", of.name());
        let question = Question { url: &url, access, accept: "*/*", most: MOST_OF_CHECKSUM };
        let Some(answer) = question.ask(fetching, doing)? else { continue };
        return Checksum::from_text(of, &String::from_utf8_lossy(&answer)).ok_or_else(|| {
            let advice = "check the address of the repository in the settings of Maven";
            fetching.failed(doing, format!("{url} has no checksum"), advice)
        });
    }
    let advice = "check group, artifact, version, classifier and `type`; if the artifact exists, add its `sha256`";
    Err(fetching.failed(doing, format!("the repository has no checksum of {url}"), advice))
}

/// The settings of the user, then those of the installation.
fn settings_files() -> Vec<PathBuf> {
    let own = home().map(|home| home.join(".m2/settings.xml"));
    let installed = ["MAVEN_HOME", "M2_HOME"].iter().find_map(|name| variable(name));
    let of_installation = match installed {
        Some(folder) => Path::new(&folder).join("conf/settings.xml"),
        None => PathBuf::from("/etc/maven/settings.xml"),
    };
    own.into_iter().chain([of_installation]).collect()
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Settings {
    mirrors: Mirrors,
    servers: Servers,
    profiles: Profiles,
    active_profiles: ActiveProfiles,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Mirrors {
    mirror: Vec<Mirror>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Mirror {
    id: String,
    mirror_of: String,
    url: String,
    blocked: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Servers {
    server: Vec<Server>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Server {
    id: String,
    username: String,
    password: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Profiles {
    profile: Vec<Profile>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Profile {
    id: String,
    activation: Activation,
    repositories: Repositories,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Activation {
    active_by_default: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Repositories {
    repository: Vec<Repository>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Repository {
    id: String,
    url: String,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ActiveProfiles {
    active_profile: Vec<String>,
}

impl Settings {
    /// The address that an active profile has for the central repository.
    fn central(&self) -> Option<&str> {
        let is_named = |profile: &&Profile| {
            let mut named = self.active_profiles.active_profile.iter();
            named.any(|name| name.trim() == profile.id.trim())
        };
        // Those that are active by default are so only if no other one is.
        let any_is_named = self.profiles.profile.iter().any(|profile| is_named(&profile));
        let is_active = |profile: &&Profile| {
            is_named(profile)
                || !any_is_named && profile.activation.active_by_default.trim() == "true"
        };
        let active = self.profiles.profile.iter().filter(is_active);
        let mut repositories = active.flat_map(|profile| &profile.repositories.repository);
        let central = repositories.find(|one| one.id.trim() == CENTRAL.0)?;
        Some(&central.url)
    }
}

/// The address that artifacts are fetched from and the access to it. The error says what is wrong in the settings,
/// the first of which count most.
fn repository(
    texts: &[(PathBuf, String)],
    variable: Variable<'_>,
) -> Result<(String, Access), String> {
    let mut all = Vec::new();
    for (file, text) in texts {
        let settings: Settings = quick_xml::de::from_str(text)
            .map_err(|error| format!("{} cannot be read: {error}", file.display()))?;
        all.push(settings);
    }
    let value = |text: &str| expanded(text.trim(), "env.", variable);
    let central = value(all.iter().find_map(Settings::central).unwrap_or(CENTRAL.1));
    let mirrors = || all.iter().flat_map(|settings| &settings.mirrors.mirror);
    let mirror = mirrors()
        .find(|mirror| mirror.mirror_of.trim() == CENTRAL.0)
        .or_else(|| mirrors().find(|mirror| replaces_central(&mirror.mirror_of, &central)));
    let (id, url) = match mirror {
        Some(mirror) if mirror.blocked.trim() == "true" => {
            return Err(format!("the mirror {} blocks the central repository", mirror.id.trim()));
        }
        Some(mirror) => (value(&mirror.id), value(&mirror.url)),
        None => (CENTRAL.0.to_owned(), central),
    };
    let url = address(&url)?.to_owned();
    let mut servers = all.iter().flat_map(|settings| &settings.servers.server);
    let access = match servers.find(|server| value(&server.id) == id) {
        Some(server) if server.password.trim().starts_with('{') => {
            return Err(format!(
                "the password of the server {id} is encrypted, which only Maven can read: write \
                 `${{env.NAME}}` and set that environment variable"
            ));
        }
        Some(server) if !server.username.trim().is_empty() => {
            Access::of_user(&value(&server.username), &value(&server.password))
        }
        _ => Access::default(),
    };
    Ok((url, access))
}

/// Whether a mirror of these repositories, such as `*,!snapshots`, is one of the central repository at `url`.
fn replaces_central(mirror_of: &str, url: &str) -> bool {
    let is_external = !url.starts_with("file:") && !url.contains("://localhost");
    let mut replaces = false;
    for pattern in mirror_of.split(',').map(str::trim) {
        match pattern {
            "!central" => return false,
            "central" => return true,
            "*" => replaces = true,
            "external:*" => replaces |= is_external,
            "external:http:*" => replaces |= is_external && url.starts_with("http:"),
            _ => {}
        }
    }
    replaces
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(texts: &[&str]) -> Result<(String, Access), String> {
        let variable = |name: &str| (name == "SECRET").then(|| "from environment".to_owned());
        let texts: Vec<(PathBuf, String)> =
            texts.iter().map(|text| ("settings.xml".into(), (*text).to_owned())).collect();
        repository(&texts, &variable)
    }

    fn mirror(of: &str) -> String {
        format!(
            "<?xml version=\"1.0\"?>\n<settings xmlns=\"http://maven.apache.org/SETTINGS/1.2.0\">\n\
             <!-- <mirrors><mirror>none</mirror></mirrors> -->\n<localRepository>/x</localRepository>\n\
             <mirrors><mirror><id>own</id><name>Our &amp; mirror</name>\n\
             <url> https://mirror.example/maven/ </url><mirrorOf>{of}</mirrorOf></mirror></mirrors>\n\
             <servers><server><id>own</id><username>me</username>\n\
             <password>${{env.SECRET}}</password></server></servers>\n</settings>"
        )
    }

    #[test]
    fn mirror_and_password_of_the_user_are_used() {
        let own =
            ("https://mirror.example/maven".to_owned(), Access::of_user("me", "from environment"));
        for of in ["central", "*", "external:*", "other, central", "*,!snapshots"] {
            assert_eq!(found(&[&mirror(of)]), Ok(own.clone()), "{of}");
        }
        let central = (CENTRAL.1.to_owned(), Access::default());
        for of in ["other", "*,!central", "external:http:*"] {
            assert_eq!(found(&[&mirror(of)]), Ok(central.clone()), "{of}");
        }
        assert_eq!(found(&[]), Ok(central.clone()));
        assert_eq!(found(&["<settings/>"]), Ok(central));
        // The user's settings count more than those of the installation.
        let other = mirror("central").replace("mirror.example", "other.example");
        assert_eq!(found(&[&mirror("central"), &other]), Ok(own));
    }

    #[test]
    fn address_of_an_active_profile_is_used() {
        let text = |active: &str| {
            format!(
                "<settings><profiles><profile><id>p</id><repositories><repository><id>central</id>\
                 <url>http://repository.example/all</url></repository></repositories></profile>\
                 </profiles>{active}</settings>"
            )
        };
        let active = text("<activeProfiles><activeProfile>p</activeProfile></activeProfiles>");
        assert_eq!(found(&[&active]).unwrap().0, "http://repository.example/all");
        assert_eq!(found(&[&text("")]).unwrap().0, CENTRAL.1);
    }

    #[test]
    fn settings_that_cannot_be_used_are_explained() {
        let encrypted = mirror("*").replace("${env.SECRET}", "{COQLCE6DU6GtcS5P=}");
        assert!(found(&[&encrypted]).unwrap_err().contains("encrypted"));
        let blocked = mirror("*").replace("</mirrorOf>", "</mirrorOf><blocked>true</blocked>");
        assert!(found(&[&blocked]).unwrap_err().contains("blocks"));
        assert!(
            found(&["<settings><mirrors>"]).unwrap_err().contains("settings.xml cannot be read")
        );
    }
}
