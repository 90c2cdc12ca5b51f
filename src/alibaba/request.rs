//! One request of a product: parameters in, a typed answer out.
//!
//! A product's action is its name, its parameters and how to read the answer:
//!
//! ```ignore
//! self.0.read(DESCRIBE_VSWITCHES).with("VpcId", vpc_id).numbered("VSwitches", 50, vswitch).await
//! self.0.write(permit, DELETE_LOAD_BALANCER).with("LoadBalancerId", id).done().await
//! ```
//!
//! Lists that come in pages are read to their end, or not at all: half a list would look like things that went away.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt::Display;

use litemap::LiteMap;

use super::actions::{Action, ReadAction, WriteAction};
use super::answer::{Decoder, Fields, Mismatch};
use super::client::SigningClient;
use super::fault::{Fault, FaultKind};
use super::rpc::RpcAnswer;
use super::signing::Params;
use crate::fence::Permit;

/// More pages than any account has; a list that does not end is not a list.
const MOST_PAGES: usize = 1000;
/// More entries than any account has.
const MOST_ENTRIES: usize = 200_000;

/// A request that has not been sent.
#[derive(Clone, Debug)]
pub(super) struct Request<'a> {
    client: &'a SigningClient,
    action: &'static Action,
    /// For actions that change something, and for others that may not take longer.
    permit: Option<&'a Permit>,
    /// `None` for the region of the cluster.
    region: Option<&'a str>,
    params: Params,
}

impl SigningClient {
    /// A request that changes nothing.
    pub(super) fn read(&self, action: ReadAction) -> Request<'_> {
        Request { client: self, action: action.0, permit: None, region: None, params: Params::default() }
    }

    /// A request that changes something.
    pub(super) fn write<'a>(&'a self, permit: &'a Permit, action: WriteAction) -> Request<'a> {
        Request { client: self, action: action.0, permit: Some(permit), region: None, params: Params::default() }
    }
}

impl<'a> Request<'a> {
    /// Sends it to another region than the cluster's.
    pub(super) const fn to(mut self, region: &'a str) -> Self {
        self.region = Some(region);
        self
    }

    /// Gives it up when the permit ends, also where it waits for a rate limit.
    pub(super) const fn within(mut self, permit: &'a Permit) -> Self {
        self.permit = Some(permit);
        self
    }

    /// Adds a parameter, unless it is empty.
    pub(super) fn with(mut self, name: impl Into<Cow<'static, str>>, value: impl ToString) -> Self {
        self.params.push(name, value);
        self
    }

    /// Adds attributes, by the names that they display.
    pub(super) fn fields<F: Display>(self, fields: &LiteMap<F, String>) -> Self {
        fields.iter().fold(self, |request, (field, value)| request.with(field.to_string(), value))
    }

    /// Adds a parameter if there is a value.
    pub(super) fn maybe(self, name: &'static str, value: Option<impl ToString>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    /// Adds `name.1`, `name.2` and so on.
    pub(super) fn list<T: ToString>(mut self, name: &str, values: impl IntoIterator<Item = T>) -> Self {
        for (index, value) in values.into_iter().enumerate() {
            self.params.push(format!("{name}.{}", index + 1), value);
        }
        self
    }

    /// Adds `Tag.1.Key`, `Tag.1.Value` and so on.
    pub(super) fn tags<'t>(mut self, tags: impl IntoIterator<Item = (&'t String, &'t String)>) -> Self {
        for (index, (key, value)) in tags.into_iter().enumerate() {
            self.params.push(format!("Tag.{}.Key", index + 1), key);
            self.params.push(format!("Tag.{}.Value", index + 1), value);
        }
        self
    }

    /// Sends it.
    pub(super) async fn send(self) -> Result<RpcAnswer, Fault> {
        self.client.call(self.action, self.region, self.permit, self.params).await
    }

    /// Sends it; the answer says nothing but that it is done.
    pub(super) async fn done(self) -> Result<(), Fault> {
        self.send().await.map(drop)
    }

    /// Sends it and gives the id of what was created.
    pub(super) async fn create(self, id: &str) -> Result<String, Fault> {
        let answer = self.send().await?;
        let created = answer.decode(|body| body.text(id))?;
        if created.is_empty() {
            Err(answer.unusable(format!("the answer lacks the {id} of what was created")))
        } else {
            Ok(created)
        }
    }

    /// Sends it and gives the one object that has the id.
    pub(super) async fn one<T>(self, name: &'static str, id: &str, object: Decoder<T>) -> Result<T, Fault> {
        let answer = self.with(name, id).send().await?;
        if answer.decode(|body| body.text(name))? != id {
            return Err(answer.unusable(format!("{name} {id} was asked for, but the answer is about another one")));
        }
        answer.decode(object)
    }

    /// Sends it and gives a list that comes at once.
    pub(super) async fn all<T>(self, list: &str, item: Decoder<T>) -> Result<Vec<T>, Fault> {
        self.send().await?.decode(|body| body.list(list, item))
    }

    /// Sends it and gives how many entries the whole list has, as the answer says.
    pub(super) async fn count(self) -> Result<u64, Fault> {
        let total = self.send().await?.decode(total_of)?;
        Ok(u64::try_from(total).unwrap_or_default())
    }

    /// Reads a list whose pages of `size` entries are numbered.
    pub(super) async fn numbered<T>(self, list: &str, size: usize, item: Decoder<T>) -> Result<Vec<T>, Fault> {
        let action = self.action;
        whole(action, self.numbered_partial(list, size, item).await?)
    }

    /// The same, but what the pages show of a list that may change while it is read, and whether it did not.
    pub(super) async fn numbered_partial<T>(
        self,
        list: &str,
        size: usize,
        item: Decoder<T>,
    ) -> Result<(Vec<T>, bool), Fault> {
        self.numbered_by("PageNumber", size, |body| Ok((body.list(list, item)?, total_of(body)?))).await
    }

    /// The same where this parameter numbers the pages. `page` gives the entries of one, and the length of the whole list: 0
    /// if the answer does not say.
    pub(super) async fn numbered_by<T>(
        self,
        parameter: &'static str,
        size: usize,
        mut page: impl FnMut(Fields<'_>) -> Result<(Vec<T>, i64), Mismatch>,
    ) -> Result<(Vec<T>, bool), Fault> {
        let (mut all, mut announced, mut changed) = (Vec::new(), None, false);
        let request = self.with("PageSize", size);
        for number in 1..=MOST_PAGES {
            let (entries, total) = request.clone().with(parameter, number).send().await?.decode(&mut page)?;
            let (short, empty) = (entries.len() < size, entries.is_empty());
            all.extend(entries);
            if all.len() > MOST_ENTRIES {
                break;
            }
            let missing = usize::try_from(total).is_ok_and(|total| all.len() < total);
            changed |= announced.replace(total).is_some_and(|before| before != total);
            if missing && empty {
                return Ok((all, false));
            }
            // A short page is the last one only if nothing is missing: a server may grant fewer entries than asked for.
            if !missing && (short || total > 0) {
                return Ok((all, !changed));
            }
        }
        Err(endless(request.action))
    }

    /// Reads a list whose pages name the next one.
    pub(super) async fn by_token<T>(self, list: &str, item: Decoder<T>) -> Result<Vec<T>, Fault> {
        let action = self.action;
        self.pages(list, item, (MOST_PAGES, MOST_ENTRIES)).await?.ok_or_else(|| endless(action))
    }

    /// The same with pages of `size` entries; `None` if there are more than `most_pages` of them.
    pub(super) async fn by_token_within<T>(
        self,
        list: &str,
        size: usize,
        item: Decoder<T>,
        most_pages: usize,
    ) -> Result<Option<Vec<T>>, Fault> {
        self.with("MaxResults", size).pages(list, item, (most_pages, size.saturating_mul(most_pages))).await
    }

    /// `None` if there are more pages or entries than this.
    async fn pages<T>(
        self,
        list: &str,
        item: Decoder<T>,
        (most_pages, most): (usize, usize),
    ) -> Result<Option<Vec<T>>, Fault> {
        let (mut all, mut token) = (Vec::new(), String::new());
        for _ in 0..most_pages {
            let answer = self.clone().with("NextToken", &token).send().await?;
            let (total, entries, next) = answer
                .decode(|body| Ok((body.number("TotalCount")?, body.list(list, item)?, body.text("NextToken")?)))?;
            all.extend(entries);
            let is_too_long = usize::try_from(total).is_ok_and(|total| total > most) || all.len() > most;
            // A page that names itself as the next one would be read for ever.
            if is_too_long || (!next.is_empty() && next == token) {
                break;
            }
            if next.is_empty() {
                return Ok(Some(all));
            }
            token = next;
        }
        Ok(None)
    }
}

/// How many entries the whole list has, 0 if the answer does not say. Products differ in how they call it.
fn total_of(body: Fields<'_>) -> Result<i64, Mismatch> {
    Ok(body.number("TotalCount")?.max(body.number("TotalItems")?))
}

/// The entries of a list, unless it changed while it was read.
pub(super) fn whole<T>(action: &Action, (entries, is_whole): (Vec<T>, bool)) -> Result<Vec<T>, Fault> {
    let changed = || Fault::new(action.name, FaultKind::Transient, "the list changed while it was read");
    is_whole.then_some(entries).ok_or_else(changed)
}

fn endless(action: &Action) -> Fault {
    Fault::new(action.name, FaultKind::Bug, "the list does not end")
}

/// Each entry once: an entry that moves between pages while they are read comes twice. Entries without an id all stay.
pub(super) fn unique<T>(entries: Vec<T>, id: impl Fn(&T) -> &str) -> Vec<T> {
    let mut seen = HashSet::new();
    entries.into_iter().filter(|entry| id(entry).is_empty() || seen.insert(id(entry).to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::alibaba::CloudClient;
    use crate::alibaba::actions::{DESCRIBE_ROUTE_ENTRIES, DESCRIBE_VSWITCHES};
    use crate::alibaba::tests::script::{Reply, cloud};

    fn pages(pages: &[(&[u32], i64)]) -> CloudClient {
        let page = |(entries, total): &(&[u32], i64)| {
            let entries: Vec<_> = entries.iter().map(|number| json!({"Number": number})).collect();
            Reply::ok(json!({"TotalCount": total, "Entries": entries}))
        };
        cloud(pages.iter().map(page)).0
    }

    /// Reads pages of two.
    async fn read(prepared: &[(&[u32], i64)]) -> Result<Vec<i64>, FaultKind> {
        let cloud = pages(prepared);
        let request = cloud.signing.read(DESCRIBE_VSWITCHES);
        request.numbered("Entries", 2, |entry| entry.number("Number")).await.map_err(|fault| fault.kind)
    }

    #[tokio::test]
    async fn numbered_pages_are_read_until_nothing_is_missing() {
        assert_eq!(read(&[(&[], 0)]).await, Ok(vec![]));
        assert_eq!(read(&[(&[1, 2], 3), (&[3], 3)]).await, Ok(vec![1, 2, 3]));
        assert_eq!(read(&[(&[1, 2], 2)]).await, Ok(vec![1, 2]), "no page beyond the announced end");
        assert_eq!(read(&[(&[1], 3), (&[2, 3], 3)]).await, Ok(vec![1, 2, 3]), "pages smaller than asked for");
        assert_eq!(read(&[(&[1, 2], 0), (&[3], 0)]).await, Ok(vec![1, 2, 3]), "a server that announces no total");
    }

    #[tokio::test]
    async fn a_list_that_does_not_end_is_no_list() {
        let read = async |replies: Vec<Reply>| {
            let (cloud, script) = cloud(replies);
            let request = cloud.signing.read(DESCRIBE_ROUTE_ENTRIES);
            let read = request.by_token("Entries", |_| Ok(())).await.map_err(|fault| fault.kind);
            (read.map(|all| all.len()), script.seen().len())
        };
        let same = || Reply::ok(json!({"Entries": [{}], "NextToken": "more"}));
        assert_eq!(read(vec![same(), same()]).await, (Err(FaultKind::Bug), 2));
        let many = vec![json!({}); 70_000];
        let large = |next: usize| Reply::ok(json!({"Entries": many, "NextToken": next.to_string()}));
        let read = read((0..3).map(large).collect()).await;
        assert_eq!(read, (Err(FaultKind::Bug), 3), "nor one that nothing could hold");
    }

    #[tokio::test]
    async fn a_list_that_changes_while_it_is_read_is_read_again() {
        assert_eq!(read(&[(&[1, 2], 4), (&[4], 3)]).await, Err(FaultKind::Transient), "3 moved to the page before");
        assert_eq!(read(&[(&[1, 2], 4), (&[], 4)]).await, Err(FaultKind::Transient));
        let cloud = pages(&[(&[1, 2], 4), (&[4], 3)]);
        let request = cloud.signing.read(DESCRIBE_VSWITCHES);
        let shown = request.numbered_partial("Entries", 2, |entry| entry.number("Number")).await;
        assert_eq!(shown.ok(), Some((vec![1, 2, 4], false)), "what it showed was there");
        let cloud = pages(&[(&[1, 2], 6), (&[4, 5], 5), (&[6], 5)]);
        let request = cloud.signing.read(DESCRIBE_VSWITCHES);
        let shown = request.numbered_partial("Entries", 2, |entry| entry.number("Number")).await;
        assert_eq!(shown.ok(), Some((vec![1, 2, 4, 5, 6], false)), "the pages after the change count, too");
    }
}
