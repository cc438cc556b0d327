//! Requests and responses as lines of JSON.

use std::io::{BufRead, Write};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::ServeError;

/// Receives a message; `None` at the end of input, also within a message: the other side has exited.
pub(crate) fn receive<M: DeserializeOwned>(
    input: &mut impl BufRead,
) -> Result<Option<M>, ServeError> {
    let mut line = String::new();
    input.read_line(&mut line).map_err(ServeError::Read)?;
    if line.ends_with('\n') { Ok(Some(serde_json::from_str(&line)?)) } else { Ok(None) }
}

pub(crate) fn send(output: &mut impl Write, message: &impl Serialize) -> Result<(), ServeError> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    output.write_all(&line).and_then(|()| output.flush()).map_err(ServeError::Send)
}
