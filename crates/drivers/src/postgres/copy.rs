use super::channel::{Exchanged, Lost, Step};
use super::connection::{PostgresConnection, check_text, executing, refused};
use super::reply::{Transaction, number_at_end};
use super::server_error::ServerError;
use super::wire::{Malformed, put, put_text};
use crate::Error;

/// Rows are gathered up to about this many bytes before they are sent.
const BATCH: usize = 64 << 10;

/// What became of a COPY.
#[derive(Default)]
struct Copy {
    /// The server asked for data.
    begun: bool,
    /// The rows that it counted.
    rows: u64,
    error: Option<Box<ServerError>>,
}

impl PostgresConnection {
    /// Fills a table by `COPY … FROM STDIN` and returns the number of rows.
    ///
    /// `next` appends rows in COPY's text format (each ends with a newline), as many at a time as
    /// it likes, and says whether there are more. It is not called again after the server reported
    /// an error.
    ///
    /// # Errors
    /// `sql` is no such statement, or the server refused a row. The connection can be used
    /// afterwards unless it is lost.
    pub fn copy_in(
        &mut self,
        sql: &str,
        next: &mut dyn FnMut(&mut Vec<u8>) -> bool,
    ) -> Result<u64, Error> {
        self.settle()?;
        check_text(sql)?;
        let mut copy = Copy::default();
        let transaction = match self.try_copy(sql, next, &mut copy) {
            Ok(transaction) => transaction,
            Err(lost) => return Err(self.channel.fail(lost, copy.error, executing(sql))),
        };
        Exchanged { error: copy.error, transaction }.into_result(|| executing(sql))?;
        if !copy.begun {
            let message = "it did not ask for data; is it a COPY … FROM STDIN?".to_owned();
            return Err(refused(executing(sql), message));
        }
        Ok(copy.rows)
    }

    fn try_copy(
        &mut self,
        sql: &str,
        next: &mut dyn FnMut(&mut Vec<u8>) -> bool,
        copy: &mut Copy,
    ) -> Result<Transaction, Lost> {
        self.channel.out.clear();
        put(&mut self.channel.out, b'Q', |out| put_text(out, sql));
        self.channel.send()?;
        loop {
            match self.step_of_copy(copy)? {
                Step::More => {}
                Step::End(transaction) => return Ok(transaction),
                Step::Copy if copy.begun => self.channel.refuse_to_copy(false)?,
                Step::Copy => {
                    copy.begun = true;
                    self.send_rows(next)?;
                }
            }
        }
    }

    /// Sends rows until there are no more, or the server says something: mostly an error, after
    /// which it ignores the rest and waits for the next request.
    fn send_rows(&mut self, next: &mut dyn FnMut(&mut Vec<u8>) -> bool) -> Result<(), Lost> {
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
            if more && self.channel.has_spoken()? {
                return Ok(());
            }
        }
        Ok(())
    }

    fn step_of_copy(&mut self, copy: &mut Copy) -> Result<Step, Lost> {
        let Copy { rows, error, .. } = copy;
        self.channel.step(error, &mut |tag, body| match tag {
            b'C' => {
                *rows = number_at_end(body);
                Ok(())
            }
            // Another statement's rows, which nobody asked for.
            b'T' | b'D' | b'I' | b'H' | b'd' | b'c' => Ok(()),
            tag => Err(Malformed::unexpected(tag)),
        })
    }
}
