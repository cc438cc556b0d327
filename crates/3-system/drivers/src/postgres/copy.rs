use super::channel::{ConnectionLost, Response, Step};
use super::connection::{PostgresConnection, check_text, refused};
use super::reply::{Transaction, number_at_end};
use super::server_error::ServerError;
use super::wire::{Malformed, put, put_text};
use crate::Error;
use crate::error_text::executing;

/// Rows are sent in batches of about this many bytes.
const BATCH: usize = 64 << 10;

/// The state of a COPY.
#[derive(Default)]
struct Copy {
    /// The server has asked for data.
    started: bool,
    /// Number of rows that the server reported.
    rows: u64,
    error: Option<Box<ServerError>>,
}

impl PostgresConnection {
    /// Loads a table with `COPY … FROM STDIN` and returns the number of rows.
    ///
    /// `next` appends one or more rows in COPY's text format (each ends with a newline) and returns whether
    /// there are more. It is not called after the server has reported an error.
    ///
    /// # Errors
    /// `sql` is not such a statement, or the server rejected a row. The connection remains usable unless it is
    /// lost.
    pub fn copy_in(
        &mut self,
        sql: &str,
        next: &mut dyn FnMut(&mut Vec<u8>) -> bool,
    ) -> Result<u64, Error> {
        self.drain()?;
        check_text(sql)?;
        let mut copy = Copy::default();
        let transaction = match self.try_copy(sql, next, &mut copy) {
            Ok(transaction) => transaction,
            Err(lost) => return Err(self.channel.fail(lost, copy.error, executing(sql))),
        };
        Response { error: copy.error, transaction }.into_result(|| executing(sql))?;
        if !copy.started {
            let message =
                "the server did not request data; the statement must be COPY … FROM STDIN"
                    .to_owned();
            return Err(refused(executing(sql), message));
        }
        Ok(copy.rows)
    }

    fn try_copy(
        &mut self,
        sql: &str,
        next: &mut dyn FnMut(&mut Vec<u8>) -> bool,
        copy: &mut Copy,
    ) -> Result<Transaction, ConnectionLost> {
        self.channel.out.clear();
        put(&mut self.channel.out, b'Q', |out| put_text(out, sql));
        self.channel.send()?;
        loop {
            match self.step_of_copy(copy)? {
                Step::More => {}
                Step::End(transaction) => return Ok(transaction),
                Step::Copy if copy.started => self.channel.fail_copy(false)?,
                Step::Copy => {
                    copy.started = true;
                    self.send_rows(next)?;
                }
            }
        }
    }

    /// Sends rows until there are no more or the server sends a message. That is usually an error, after
    /// which the server ignores further rows.
    fn send_rows(
        &mut self,
        next: &mut dyn FnMut(&mut Vec<u8>) -> bool,
    ) -> Result<(), ConnectionLost> {
        let mut rows = Vec::new();
        let mut more = true;
        while more {
            rows.clear();
            while more && rows.len() < BATCH {
                more = next(&mut rows);
            }
            self.channel.out.clear();
            if !rows.is_empty() {
                put(&mut self.channel.out, b'd', |out| out.extend_from_slice(&rows));
            }
            if !more {
                put(&mut self.channel.out, b'c', |_| {});
            }
            self.channel.send()?;
            if more && self.channel.has_message()? {
                return Ok(());
            }
        }
        Ok(())
    }

    fn step_of_copy(&mut self, copy: &mut Copy) -> Result<Step, ConnectionLost> {
        let Copy { rows, error, .. } = copy;
        self.channel.step(error, &mut |tag, body| match tag {
            b'C' => {
                *rows = number_at_end(body);
                Ok(())
            }
            // Results of another statement in the text.
            b'T' | b'D' | b'I' | b'H' | b'd' | b'c' => Ok(()),
            tag => Err(Malformed::unexpected(tag)),
        })
    }
}
