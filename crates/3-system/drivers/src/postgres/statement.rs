use dbdyno_types::server::StatementMode;

use super::bind::Bind;
use super::column_type::{ColumnType, each_column};
use super::literal::Template;
use super::parameter_error::ParameterError;
use super::wire::{Fields, Malformed};
use crate::Params;

/// A statement that can be executed.
pub(super) struct Statement {
    pub(super) sql: String,
    /// Its name on the server; `None` in text mode.
    pub(super) name: Option<String>,
    /// Types of its result columns.
    pub(super) columns: Vec<ColumnType>,
    request: Request,
}

enum Request {
    Bind(Bind),
    Text(Template),
}

/// The types of a statement's parameters and columns, as the server describes them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Description {
    pub(super) parameters: Vec<u32>,
    pub(super) columns: Vec<u32>,
}

impl Description {
    /// Parses a ParameterDescription.
    pub(super) fn read_parameters(&mut self, body: &[u8]) -> Result<(), Malformed> {
        let mut fields = Fields(body);
        let count = fields.count()?;
        self.parameters = (0..count).map(|_| fields.number()).collect::<Result<_, _>>()?;
        Ok(())
    }

    /// Parses a RowDescription.
    pub(super) fn read_columns(&mut self, body: &[u8]) -> Result<(), Malformed> {
        self.columns.clear();
        each_column(body, |kind| self.columns.push(kind))
    }
}

impl Statement {
    /// `name` is its name on the server in [`StatementMode::Prepared`].
    pub(super) fn new(
        sql: &str,
        name: String,
        mode: StatementMode,
        description: &Description,
    ) -> Self {
        let Description { parameters, columns } = description;
        let (name, request) = match mode {
            StatementMode::Prepared => {
                let bind = Bind::new(&name, parameters, columns);
                (Some(name), Request::Bind(bind))
            }
            StatementMode::Text => (None, Request::Text(Template::new(sql, parameters.len()))),
        };
        Self {
            sql: sql.to_owned(),
            name,
            columns: columns.iter().map(|kind| ColumnType::of(*kind, mode)).collect(),
            request,
        }
    }

    /// Replaces `out` with the request to execute it with these values.
    ///
    /// # Errors
    /// The values do not fit the parameters.
    #[inline]
    pub(super) fn write(&self, out: &mut Vec<u8>, params: &Params) -> Result<(), ParameterError> {
        match &self.request {
            Request::Bind(bind) => bind.write(out, params),
            Request::Text(template) => template.write(out, params),
        }
    }
}
