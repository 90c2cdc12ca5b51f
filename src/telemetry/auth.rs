//! Who may read more than the states of `/readyz`.
//!
//! As in the Kubernetes components, the API server reviews the token and whether its owner may get the path. Answers are
//! cached for a short while, and reviews are rate limited, so that a flood of requests here does not reach the API server.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::future::BoxFuture;
use parking_lot::{Mutex, RwLock};
use tokio::runtime::Handle;
use tokio::time::Instant;
use tracing::warn;

use crate::config::secret::Secret;

/// How long an answer is cached.
const TIME_TO_LIVE: Duration = Duration::from_secs(10);
/// The most answers that are cached.
const CACHED: usize = 128;
/// The most reviews within [`WINDOW`].
const REVIEWS: usize = 10;
/// The time in which reviews are counted.
const WINDOW: Duration = Duration::from_secs(1);
/// Longer ones are no tokens.
const LONGEST_TOKEN: usize = 16 * 1024;

/// The result of a review: whether the owner of the token may get the page.
pub type Access = Result<(), Denial>;

/// Reviews a token and a path.
pub trait AccessReviewer: fmt::Debug + Send + Sync {
    /// Asks the API server; the error is shown to the client.
    fn review(self: Arc<Self>, token: Secret, path: String) -> BoxFuture<'static, Result<Access, String>>;
}

/// Why a page is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Denial {
    /// 401: there is no token, or the API server does not know it.
    Unauthorized,
    /// 403: its owner may not get the page.
    Forbidden(String),
    /// 429: too many reviews at once.
    Busy,
    /// 503: no review is possible.
    Unavailable(String),
}

/// A reviewer, with the runtime that its connections live in.
type Connected = (Arc<dyn AccessReviewer>, Handle);

/// Authorizes requests. Cheap to clone; clones share the cache.
#[derive(Clone, Debug, Default)]
pub struct Authorizer {
    reviewer: Arc<RwLock<Option<Connected>>>,
    cache: Arc<Mutex<Cache>>,
}

#[derive(Debug, Default)]
struct Cache {
    answers: HashMap<(Secret, String), (Instant, Access)>,
    reviews: Vec<Instant>,
    /// Why the last review failed; empty if it did not.
    failure: String,
}

impl Authorizer {
    /// Sets the reviewer; `None` while there is no connection to an API server.
    pub fn connect(&self, reviewer: Option<Arc<dyn AccessReviewer>>) {
        *self.reviewer.write() = reviewer.map(|reviewer| (reviewer, Handle::current()));
        *self.cache.lock() = Cache::default();
    }

    /// Whether the owner of the token in this header may get the page.
    ///
    /// # Errors
    /// [`Denial`], with what to answer.
    pub async fn admit(&self, authorization: Option<&str>, path: &str) -> Result<(), Denial> {
        let token = authorization.and_then(token_of).unwrap_or_default();
        if token.is_empty() || token.len() > LONGEST_TOKEN {
            return Err(Denial::Unauthorized);
        }
        let key = (Secret::new(token), path.to_owned());
        match self.cached(&key)? {
            Some(access) => access,
            None => self.review(&key).await?,
        }
    }

    /// The cached answer; without one, a review is counted.
    fn cached(&self, key: &(Secret, String)) -> Result<Option<Access>, Denial> {
        let mut cache = self.cache.lock();
        if let Some((at, access)) = cache.answers.get(key)
            && at.elapsed() < TIME_TO_LIVE
        {
            return Ok(Some(access.clone()));
        }
        cache.reviews.retain(|at| at.elapsed() < WINDOW);
        if cache.reviews.len() >= REVIEWS {
            return Err(Denial::Busy);
        }
        cache.reviews.push(Instant::now());
        Ok(None)
    }

    async fn review(&self, key: &(Secret, String)) -> Result<Access, Denial> {
        let unavailable = |why: &str| Denial::Unavailable(why.to_owned());
        let reviewer = self.reviewer.read().clone();
        let (reviewer, runtime) = reviewer.ok_or_else(|| unavailable("there is no connection to the API server"))?;
        let review = reviewer.review(key.0.clone(), key.1.clone());
        let reviewed = runtime.spawn(review).await.map_err(|_| unavailable("the review ended early"))?;
        let mut cache = self.cache.lock();
        let access = reviewed.map_err(|why| {
            if cache.failure != why {
                warn!(code = "ACCM0731", "tokens for the pages of the server cannot be reviewed: {why}");
                cache.failure.clone_from(&why);
            }
            Denial::Unavailable(why)
        })?;
        cache.failure.clear();
        if cache.answers.len() >= CACHED {
            cache.answers.retain(|_, (at, _)| at.elapsed() < TIME_TO_LIVE);
        }
        if cache.answers.len() < CACHED {
            cache.answers.insert(key.clone(), (Instant::now(), access.clone()));
        }
        Ok(access)
    }
}

/// The token in a header. A browser cannot send a bearer token by itself: it asks for a name, which does not matter, and a
/// password, which is the token.
fn token_of(header: &str) -> Option<String> {
    if let Some(token) = header.strip_prefix("Bearer ") {
        return Some(token.trim().to_owned());
    }
    let pair = String::from_utf8(STANDARD.decode(header.strip_prefix("Basic ")?.trim()).ok()?).ok()?;
    Some(pair.split_once(':')?.1.to_owned())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[derive(Debug, Default)]
    struct FakeReviewer {
        asked: AtomicUsize,
    }

    impl AccessReviewer for FakeReviewer {
        fn review(self: Arc<Self>, token: Secret, path: String) -> BoxFuture<'static, Result<Access, String>> {
            self.asked.fetch_add(1, Ordering::Relaxed);
            Box::pin(async move {
                Ok(match (token.expose(), path.as_str()) {
                    ("good", "/metrics") => Ok(()),
                    ("good", _) => Err(Denial::Forbidden("anna".to_owned())),
                    _ => Err(Denial::Unauthorized),
                })
            })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn answers_are_cached_and_reviews_are_limited() {
        let (authorizer, reviewer) = (Authorizer::default(), Arc::new(FakeReviewer::default()));
        assert!(matches!(authorizer.admit(Some("Bearer good"), "/metrics").await, Err(Denial::Unavailable(_))));
        authorizer.connect(Some(reviewer.clone()));
        for _ in 0..100 {
            assert_eq!(authorizer.admit(Some("Bearer good"), "/metrics").await, Ok(()));
        }
        assert_eq!(reviewer.asked.load(Ordering::Relaxed), 1);
        assert_eq!(authorizer.admit(Some("Bearer good"), "/configz").await, Err(Denial::Forbidden("anna".into())));
        let basic = |pair: &str| format!("Basic {}", STANDARD.encode(pair));
        assert_eq!(authorizer.admit(Some(&basic("anna:good")), "/metrics").await, Ok(()), "as a browser sends it");
        let [bad, empty, half] = [basic("good:bad"), basic("good:"), basic("good")];
        for header in [
            None,
            Some(""),
            Some("Bearer "),
            Some("Basic good"),
            Some("Bearer bad"),
            Some(&bad),
            Some(&empty),
            Some(&half),
        ] {
            assert_eq!(authorizer.admit(header, "/metrics").await, Err(Denial::Unauthorized), "{header:?}");
        }
        let asked = reviewer.asked.load(Ordering::Relaxed);
        for number in 0..1000 {
            let refused = authorizer.admit(Some(&format!("Bearer guess-{number}")), "/metrics").await;
            assert!(matches!(refused, Err(Denial::Unauthorized | Denial::Busy)), "{refused:?}");
        }
        assert!(reviewer.asked.load(Ordering::Relaxed) - asked <= REVIEWS, "a flood does not reach the API server");
        assert_eq!(authorizer.admit(Some("Bearer good"), "/metrics").await, Ok(()), "a cached answer needs no review");
        tokio::time::advance(TIME_TO_LIVE).await;
        let asked = reviewer.asked.load(Ordering::Relaxed);
        assert_eq!(authorizer.admit(Some("Bearer good"), "/metrics").await, Ok(()));
        assert_eq!(reviewer.asked.load(Ordering::Relaxed), asked + 1, "answers expire");
    }
}
