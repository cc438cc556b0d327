/// Why a script cannot continue.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ScriptError {
    /// What failed, with file and line if Lua knows them.
    pub message: String,
    /// Whether the connection is unusable since then.
    pub lost_connection: bool,
}

impl ScriptError {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), lost_connection: false }
    }

    /// Whether a restricted script has tried what only scripts in a run may do.
    pub fn needs_run(&self) -> bool {
        self.message.contains("the script needs a run")
    }

    /// The file and line at the start of the message, such as `tpcc.lua:12: …`.
    pub fn position(&self) -> Option<(&str, u32)> {
        let (file, rest) = self.message.split_once(':')?;
        let (line, _) = rest.split_once(':')?;
        Some((file, line.parse().ok()?))
    }
}

impl From<mlua::Error> for ScriptError {
    fn from(error: mlua::Error) -> Self {
        let message = match &error {
            mlua::Error::RuntimeError(text) => text.clone(),
            mlua::Error::SyntaxError { message, .. } => message.clone(),
            mlua::Error::CallbackError { cause, .. } => return Self::from((**cause).clone()),
            other => other.to_string(),
        };
        let end = message.find("\nstack traceback:").unwrap_or(message.len());
        Self::new(&message[..end])
    }
}
