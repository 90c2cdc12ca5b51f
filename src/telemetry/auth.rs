//! Who may read more than whether all is well.
//!
//! The API server is asked, as the Kubernetes components do it: whose token it is, and whether its owner may get the path.
//! Answers are remembered for a short while, and questions are limited, so that a flood of requests here is none there.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::{Mutex, RwLock};
use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::config::secret::Secret;

/// How long an answer is believed.
const BELIEVED: Duration = Duration::from_secs(10);
/// Answers that are remembered at once.
const REMEMBERED: usize = 128;
/// Questions to the API server within [`WINDOW`].
const QUESTIONS: usize = 10;
/// The time in which questions to the API server are counted.
const WINDOW: Duration = Duration::from_secs(1);
/// Longer ones are no tokens.
const LONGEST_TOKEN: usize = 16 * 1024;

/// What the API server says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Whoever it is may have the page.
    Allowed,
    /// Nobody knows the token.
    Unknown,
    /// This user may not.
    Forbidden(String),
}

/// Decides about a token and a path.
pub trait Judge: fmt::Debug + Send + Sync {
    /// Asks; the error is for the one who asked.
    fn judge(self: Arc<Self>, token: Secret, path: String) -> BoxFuture<'static, Result<Verdict, String>>;
}

/// Why a page is not given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// 401: there is no token, or nobody knows it.
    Unauthorized,
    /// 403: its owner may not.
    Forbidden(String),
    /// 429: too many ask.
    Busy,
    /// 503: it cannot be found out.
    Unavailable(String),
}

/// Asks the judge that there is. Cheap to clone; clones share it.
#[derive(Clone, Debug, Default)]
pub struct Guard {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// With the runtime that the judge's connections live in.
    judge: RwLock<Option<(Arc<dyn Judge>, Handle)>>,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    verdicts: HashMap<(String, String), (Instant, Verdict)>,
    asked: Vec<Instant>,
}

impl fmt::Debug for Known {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Known").field("verdicts", &self.verdicts.len()).finish_non_exhaustive()
    }
}

impl Guard {
    /// From now on, this one is asked; nobody, if there is no connection to an API server.
    pub fn appoint(&self, judge: Option<Arc<dyn Judge>>) {
        *self.inner.judge.write() = judge.map(|judge| (judge, Handle::current()));
        *self.inner.known.lock() = Known::default();
    }

    /// Whether the owner of this token may have the page.
    ///
    /// # Errors
    /// [`Refusal`], with what to answer.
    pub async fn admit(&self, authorization: Option<&str>, path: &str) -> Result<(), Refusal> {
        let token = authorization.and_then(|header| header.strip_prefix("Bearer ")).map(str::trim).unwrap_or_default();
        if token.is_empty() || token.len() > LONGEST_TOKEN {
            return Err(Refusal::Unauthorized);
        }
        let key = (token.to_owned(), path.to_owned());
        let verdict = match self.recall(&key)? {
            Some(verdict) => verdict,
            None => self.ask(&key).await?,
        };
        match verdict {
            Verdict::Allowed => Ok(()),
            Verdict::Unknown => Err(Refusal::Unauthorized),
            Verdict::Forbidden(user) => Err(Refusal::Forbidden(user)),
        }
    }

    /// What is known already; otherwise a question is counted.
    fn recall(&self, key: &(String, String)) -> Result<Option<Verdict>, Refusal> {
        let mut known = self.inner.known.lock();
        if let Some((at, verdict)) = known.verdicts.get(key)
            && at.elapsed() < BELIEVED
        {
            return Ok(Some(verdict.clone()));
        }
        known.asked.retain(|at| at.elapsed() < WINDOW);
        if known.asked.len() >= QUESTIONS {
            return Err(Refusal::Busy);
        }
        known.asked.push(Instant::now());
        Ok(None)
    }

    async fn ask(&self, key: &(String, String)) -> Result<Verdict, Refusal> {
        let judge = self.inner.judge.read().clone();
        let Some((judge, runtime)) = judge else {
            return Err(Refusal::Unavailable(
                "the API server is not connected, so nobody can be recognised".to_owned(),
            ));
        };
        let asked = runtime.spawn(judge.judge(Secret::new(key.0.clone()), key.1.clone())).await;
        let verdict = match asked {
            Ok(verdict) => verdict.map_err(Refusal::Unavailable)?,
            Err(_) => return Err(Refusal::Unavailable("the question to the API server was cut off".to_owned())),
        };
        let mut known = self.inner.known.lock();
        if known.verdicts.len() >= REMEMBERED {
            known.verdicts.retain(|_, (at, _)| at.elapsed() < BELIEVED);
        }
        if known.verdicts.len() < REMEMBERED {
            known.verdicts.insert(key.clone(), (Instant::now(), verdict.clone()));
        }
        Ok(verdict)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[derive(Debug, Default)]
    struct Porter {
        asked: AtomicUsize,
    }

    impl Judge for Porter {
        fn judge(self: Arc<Self>, token: Secret, path: String) -> BoxFuture<'static, Result<Verdict, String>> {
            self.asked.fetch_add(1, Ordering::Relaxed);
            Box::pin(async move {
                Ok(match (token.expose(), path.as_str()) {
                    ("good", "/metrics") => Verdict::Allowed,
                    ("good", _) => Verdict::Forbidden("anna".to_owned()),
                    _ => Verdict::Unknown,
                })
            })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_judge_is_asked_once_in_a_while_and_never_flooded() {
        let (guard, porter) = (Guard::default(), Arc::new(Porter::default()));
        assert!(matches!(guard.admit(Some("Bearer good"), "/metrics").await, Err(Refusal::Unavailable(_))));
        guard.appoint(Some(porter.clone()));
        for _ in 0..100 {
            assert_eq!(guard.admit(Some("Bearer good"), "/metrics").await, Ok(()));
        }
        assert_eq!(porter.asked.load(Ordering::Relaxed), 1);
        assert_eq!(guard.admit(Some("Bearer good"), "/configz").await, Err(Refusal::Forbidden("anna".into())));
        for header in [None, Some(""), Some("Bearer "), Some("Basic good"), Some("Bearer bad")] {
            assert_eq!(guard.admit(header, "/metrics").await, Err(Refusal::Unauthorized), "{header:?}");
        }
        let asked = porter.asked.load(Ordering::Relaxed);
        for number in 0..1000 {
            let refused = guard.admit(Some(&format!("Bearer guess-{number}")), "/metrics").await;
            assert!(matches!(refused, Err(Refusal::Unauthorized | Refusal::Busy)), "{refused:?}");
        }
        assert!(porter.asked.load(Ordering::Relaxed) - asked <= QUESTIONS, "a flood here is none there");
        assert_eq!(guard.admit(Some("Bearer good"), "/metrics").await, Ok(()), "who is known is not kept out");
        tokio::time::advance(BELIEVED).await;
        let asked = porter.asked.load(Ordering::Relaxed);
        assert_eq!(guard.admit(Some("Bearer good"), "/metrics").await, Ok(()));
        assert_eq!(porter.asked.load(Ordering::Relaxed), asked + 1, "nobody is believed for ever");
    }
}
