//! The page at `/`: the state of the running process, as HTML that needs no JavaScript.
//!
//! `overview` gathers what it shows, from memory; `html` renders it and `plot` its charts. The page loads nothing else, from no
//! host: style and script are part of it, and the policy that it is served with allows nothing but these two, by a nonce. Every
//! text is escaped by `maud`.

mod html;
mod overview;
mod plot;

use std::sync::Arc;

use parking_lot::RwLock;
use uuid::Uuid;

use self::overview::Overview;
use crate::controllers::Context;
use crate::telemetry::http::{HomePage, RenderedPage, StatusPages};

/// The session that runs, if one does. Cheap to clone; clones share it.
pub(super) type LiveSession = Arc<RwLock<Option<Context>>>;

/// The page of this process.
#[derive(Clone, Debug, Default)]
pub(super) struct StatusPage {
    pages: StatusPages,
    session: LiveSession,
}

impl StatusPage {
    /// Has it served among `pages`. What is put in the session is on it from then on.
    pub(super) fn serve(pages: &mut StatusPages) -> LiveSession {
        let page = Self { pages: pages.clone(), session: LiveSession::default() };
        let session = page.session.clone();
        pages.home = Some(Arc::new(page));
        session
    }
}

impl HomePage for StatusPage {
    fn render(&self) -> RenderedPage {
        let session = self.session.read().clone();
        let overview = Overview::gather(&self.pages, session.as_ref());
        let nonce = Uuid::new_v4().simple().to_string();
        let policy = format!(
            "default-src 'none'; style-src 'nonce-{nonce}'; script-src 'nonce-{nonce}'; connect-src 'self'; img-src data:; \
             base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        );
        RenderedPage { html: html::page(&overview, &nonce).into_string(), policy }
    }
}

#[cfg(test)]
mod tests;
