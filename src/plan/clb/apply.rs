//! What steps do to a load balancer, so that the next change can be planned without reading everything again.

use std::collections::BTreeMap;
use std::sync::Arc;

use litemap::LiteMap;

use super::diff::fields::for_change;
use super::model::{CreateInstance, InstanceField, ListenerField, ListenerFields, ListenerKey, Protocol};
use super::observed::{
    AccessList, Observed, ObservedAccessList, ObservedDomainExtension, ObservedInstance, ObservedListener,
    PendingCharge,
};
use super::operation::{Operation, Own};
use crate::plan::service::api_fields::FieldValues as _;
use crate::plan::service::group_operation::GroupOperation;
use crate::plan::service::model::ObservedGroup;
use crate::plan::service::observed::ObservedModel;
use crate::plan::service::operation::Part;

/// The specification of an instance that is charged by use.
const BY_USE: &str = "slb.lcu.elastic";

/// What the cloud answered to a creation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CreationAnswer {
    /// Of the instance, group or domain extension.
    pub id: Option<String>,
    /// The instance's.
    pub address: Option<String>,
    /// The instance's.
    pub vpc_id: Option<String>,
    /// The instance's.
    pub vswitch_id: Option<String>,
}

impl Observed {
    /// Moves the state forward as the cloud does when an operation succeeds.
    pub fn apply(&mut self, operation: &Operation, made: &CreationAnswer) {
        match operation.part() {
            Part::Instance => self.apply_to_instance(operation, made),
            Part::Groups | Part::Backends => self.apply_to_groups(operation, made),
            Part::Listeners => self.apply_to_listeners(operation, made),
            Part::Access => self.apply_to_access_list(operation, made),
        }
    }

    fn apply_to_instance(&mut self, operation: &Operation, made: &CreationAnswer) {
        match operation {
            Operation::Create(wanted) => {
                self.instance = Some(created(wanted, made));
                self.groups.clear();
                self.listeners = Some(LiteMap::new());
            }
            Operation::Delete { .. } => {
                self.instance = None;
                self.groups.clear();
                self.listeners = None;
            }
            _ => {
                if let Some(instance) = &mut self.instance {
                    change_instance(instance, operation);
                }
            }
        }
    }

    fn apply_to_groups(&mut self, operation: &Operation, made: &CreationAnswer) {
        match operation {
            Operation::Own(Own::CreateGroup { name, backends }) => {
                let id = made.id.clone().unwrap_or_else(|| name.clone());
                self.groups.insert(
                    id,
                    ObservedGroup { name: name.clone(), backends: Some(Arc::new(backends.clone().into())) },
                );
            }
            Operation::Group(GroupOperation::DeleteGroup { id, .. }) => drop(self.groups.remove(id)),
            Operation::Group(operation) => {
                let id = operation.backends_of().and_then(|group| self.group_id(group)).map(str::to_owned);
                if let Some(found) = id.and_then(|id| self.groups.get_mut(&id)) {
                    operation.apply(found);
                }
            }
            _ => {}
        }
    }

    fn apply_to_listeners(&mut self, operation: &Operation, made: &CreationAnswer) {
        match operation {
            Operation::CreateListener { listener, description, group, fields } => {
                let fields = self.with_list_id(fields);
                let group_id = group.as_ref().and_then(|group| self.group_id(group)).unwrap_or_default().to_owned();
                let made = ObservedListener {
                    description: description.clone(),
                    status: "stopped".to_owned(),
                    group_id,
                    fields,
                    id: String::new(),
                    certificates: (listener.protocol == Protocol::Https).then(BTreeMap::new),
                };
                self.listeners.get_or_insert_default().insert(*listener, Box::new(made));
            }
            Operation::SetListener { listener, description, group, fields } => {
                let fields = self.sent(*listener, fields);
                let group_id = group.as_ref().and_then(|group| self.group_id(group)).map(str::to_owned);
                if let Some(found) = self.listener_mut(*listener) {
                    description.clone_into(&mut found.description);
                    found.group_id = group_id.unwrap_or_else(|| found.group_id.clone());
                    found.fields.extend(fields);
                    forget(&mut found.fields);
                }
            }
            Operation::StartListener { listener } => {
                if let Some(found) = self.listener_mut(*listener) {
                    "running".clone_into(&mut found.status);
                }
            }
            Operation::DeleteListener { listener } => {
                if let Some(all) = &mut self.listeners {
                    all.remove(listener);
                }
            }
            Operation::Own(Own::CreateDomainExtension { listener, .. })
            | Operation::Own(Own::SetDomainExtension { listener, .. })
            | Operation::Own(Own::DeleteDomainExtension { listener, .. }) => {
                let domains = self.listener_mut(*listener).and_then(|found| found.certificates.as_mut());
                if let Some(domains) = domains {
                    apply_to_domains(domains, operation, made);
                }
            }
            _ => {}
        }
    }

    fn listener_mut(&mut self, listener: ListenerKey) -> Option<&mut ObservedListener> {
        self.listeners.as_mut()?.get_mut(&listener).map(|found| &mut **found)
    }

    /// Attributes for a request that changes a listener: all that it has, with those that `change`.
    pub fn sent(&self, listener: ListenerKey, changes: &ListenerFields) -> ListenerFields {
        let found = self.listeners.as_ref().and_then(|all| all.get(&listener));
        let found = found.map(|found| found.fields.clone()).unwrap_or_default();
        self.with_list_id(&for_change(listener.protocol, &found, changes))
    }

    /// Attributes as they are sent: plans name an access control list that does not exist yet by its name.
    pub fn with_list_id(&self, fields: &ListenerFields) -> ListenerFields {
        let mut fields = fields.clone();
        if let (AccessList::Found(list), Some(named)) = (&self.access_list, fields.get_mut(&ListenerField::AclId))
            && *named == list.name
        {
            named.clone_from(&list.id);
        }
        fields
    }

    fn apply_to_access_list(&mut self, operation: &Operation, made: &CreationAnswer) {
        match (operation, &mut self.access_list) {
            (Operation::Own(Own::CreateAccessList(wanted)), list) => {
                *list = AccessList::Found(ObservedAccessList {
                    id: made.id.clone().unwrap_or_default(),
                    name: wanted.name.clone(),
                    tags: LiteMap::from_iter(wanted.tags.clone()),
                    ..ObservedAccessList::default()
                });
            }
            (Operation::Own(Own::DeleteAccessList { .. }), list) => *list = AccessList::Absent,
            (Operation::Own(Own::AddAccessEntries { entries, .. }), AccessList::Found(list)) => {
                list.entries.extend(entries)
            }
            (Operation::Own(Own::RemoveAccessEntries { entries, .. }), AccessList::Found(list)) => {
                list.entries.retain(|entry| !entries.contains(entry));
            }
            _ => {}
        }
    }
}

fn created(wanted: &CreateInstance, made: &CreationAnswer) -> ObservedInstance {
    let placement = wanted.placement();
    let mut fields = wanted.fields.clone();
    let known = [
        (InstanceField::Address, made.address.clone()),
        (InstanceField::MasterZone, placement.master_zone),
        (InstanceField::SlaveZone, placement.slave_zone),
    ];
    fields.extend(&known.into_iter().filter_map(|(field, value)| Some((field, value?))).collect());
    let in_vpc = fields.is(InstanceField::AddressType, "intranet") && !wanted.vswitch_ids.is_empty();
    for (field, usual) in [
        (InstanceField::Address, ""),
        (InstanceField::IpVersion, "ipv4"),
        (InstanceField::NetworkType, if in_vpc { "vpc" } else { "classic" }),
        (InstanceField::Spec, BY_USE),
        (InstanceField::InternetChargeType, "paybytraffic"),
        (InstanceField::Bandwidth, "5120"),
    ] {
        fields.or_insert(field, usual);
    }
    ObservedInstance {
        id: made.id.clone().unwrap_or_default(),
        fields,
        vpc_id: made.vpc_id.clone().unwrap_or_default(),
        vswitch_id: made.vswitch_id.clone().unwrap_or_default(),
        pending_charge: PendingCharge::None,
        status: "active".to_owned(),
        tags: LiteMap::from_iter(wanted.tags.clone()),
    }
}

fn change_instance(instance: &mut ObservedInstance, operation: &Operation) {
    match operation {
        Operation::Own(Own::SetInstance(fields)) => {
            if fields.contains_key(&InstanceField::ChargeType) {
                instance.fields.insert(InstanceField::Spec, BY_USE.to_owned());
            }
            instance.fields.extend(fields);
        }
        Operation::Tag { tags } => instance.tags.extend(tags.clone()),
        Operation::Untag { keys } => instance.tags.retain(|key, _| !keys.contains(key)),
        _ => {}
    }
}

fn apply_to_domains(
    domains: &mut BTreeMap<String, ObservedDomainExtension>,
    operation: &Operation,
    made: &CreationAnswer,
) {
    match operation {
        Operation::Own(Own::CreateDomainExtension { domain, certificate_id, .. }) => {
            let id = made.id.clone().unwrap_or_default();
            domains.insert(domain.clone(), ObservedDomainExtension { id, certificate_id: certificate_id.clone() });
        }
        Operation::Own(Own::SetDomainExtension { domain, certificate_id, .. }) => {
            if let Some(found) = domains.get_mut(domain) {
                found.certificate_id.clone_from(certificate_id);
            }
        }
        Operation::Own(Own::DeleteDomainExtension { domain, .. }) => {
            domains.remove(domain);
        }
        _ => {}
    }
}

/// What the API forgets when a feature is switched off.
fn forget(fields: &mut ListenerFields) {
    if fields.is(ListenerField::AclStatus, "off") {
        fields.remove(&ListenerField::AclId);
        fields.remove(&ListenerField::AclType);
    }
    if fields.is(ListenerField::StickySession, "off") {
        for field in [ListenerField::StickySessionType, ListenerField::Cookie, ListenerField::CookieTimeout] {
            fields.remove(&field);
        }
    }
}
