//! What steps do to a load balancer, so that the next change can be planned without reading everything again.

use std::sync::Arc;

use litemap::LiteMap;

use super::desired::ClbModel;
use super::diff::fields::for_change;
use super::model::{CreateInstance, InstanceField, ListenerField, ListenerFields, ListenerKey};
use super::observed::{
    AccessList, Observed, ObservedAccessList, ObservedDomainExtension, ObservedInstance, ObservedParts, PendingCharge,
};
use super::operation::{Operation, Own};
use crate::plan::loadbalancer::api_fields::FieldValues as _;
use crate::plan::loadbalancer::cloud::{Answer, CloudModel};
use crate::plan::loadbalancer::model::ObservedGroup;
use crate::plan::loadbalancer::ownership::Owner;

/// The specification of an instance that is charged by use.
const BY_USE: &str = "slb.lcu.elastic";

impl CloudModel for ClbModel {
    const NEW_ARE_STOPPED: bool = true;
    const RUNNING: &'static str = "running";
    type ObservedInstance = ObservedInstance;
    type Parts = ObservedParts;

    fn made(wanted: &CreateInstance, made: &Answer) -> ObservedInstance {
        let placement = wanted.placement();
        let mut fields = wanted.fields.clone();
        let known = [
            (InstanceField::Address, made.address.clone()),
            (InstanceField::MasterZone, placement.master_zone),
            (InstanceField::SlaveZone, placement.slave_zone),
        ];
        fields.extend(known.into_iter().filter_map(|(field, value)| Some((field, value?))));
        let in_vpc = fields.is(InstanceField::AddressType, "intranet") && !wanted.vswitch_ids.is_empty();
        for (field, usual) in [
            (InstanceField::Address, ""),
            (InstanceField::IpVersion, "ipv4"),
            (InstanceField::NetworkType, if in_vpc { "vpc" } else { "classic" }),
            (InstanceField::Spec, BY_USE),
            (InstanceField::InternetChargeType, "paybytraffic"),
            (InstanceField::Bandwidth, "5120"),
        ] {
            fields.entry(field).or_insert_with(|| usual.to_owned());
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

    fn apply(observed: &mut Observed, operation: &Operation, made: &Answer) {
        let id = || made.id.clone().unwrap_or_default();
        match operation {
            // Server groups are parts of a load balancer.
            Operation::Create(_) | Operation::Delete { .. } => observed.groups.clear(),
            Operation::SetListener { listener, .. } => {
                observed.listener_mut(listener).into_iter().for_each(|found| forget(&mut found.fields));
            }
            Operation::Own(Own::SetInstance(fields)) => {
                let Some(instance) = &mut observed.instance else { return };
                if fields.contains_key(&InstanceField::ChargeType) {
                    instance.fields.insert(InstanceField::Spec, BY_USE.to_owned());
                }
                instance.fields.extend(fields.clone());
            }
            Operation::Own(Own::CreateGroup { name, backends }) => {
                let id = made.id.clone().unwrap_or_else(|| name.clone());
                let group = ObservedGroup { name: name.clone(), backends: Some(Arc::new(backends.clone().into())) };
                observed.groups.insert(id, group);
            }
            Operation::Own(Own::CreateDomainExtension { listener, domain, certificate_id }) => {
                let found = ObservedDomainExtension { id: id(), certificate_id: certificate_id.clone() };
                observed
                    .certificates_mut(listener)
                    .into_iter()
                    .for_each(|all| drop(all.insert(domain.clone(), found.clone())));
            }
            Operation::Own(Own::SetDomainExtension { listener, domain, certificate_id, .. }) => {
                if let Some(found) = observed.certificates_mut(listener).and_then(|all| all.get_mut(domain)) {
                    found.certificate_id.clone_from(certificate_id);
                }
            }
            Operation::Own(Own::DeleteDomainExtension { listener, domain, .. }) => {
                observed.certificates_mut(listener).into_iter().for_each(|all| drop(all.remove(domain)));
            }
            Operation::Own(Own::CreateAccessList(wanted)) => {
                observed.parts.access_list = AccessList::Found(ObservedAccessList {
                    id: id(),
                    name: wanted.name.clone(),
                    tags: LiteMap::from_iter(wanted.tags.clone()),
                    ..ObservedAccessList::default()
                });
            }
            Operation::Own(Own::DeleteAccessList { .. }) => observed.parts.access_list = AccessList::Absent,
            Operation::Own(Own::AddAccessEntries { entries, .. }) => {
                if let AccessList::Found(list) = &mut observed.parts.access_list {
                    list.entries.extend(entries);
                }
            }
            Operation::Own(Own::RemoveAccessEntries { entries, .. }) => {
                if let AccessList::Found(list) = &mut observed.parts.access_list {
                    list.entries.retain(|entry| !entries.contains(entry));
                }
            }
            _ => {}
        }
    }

    fn sent(key: ListenerKey, found: &ListenerFields, changes: &ListenerFields) -> ListenerFields {
        for_change(key.protocol, found, changes)
    }

    /// Plans name an access control list that does not exist yet by its name.
    fn with_ids(observed: &Observed, mut fields: ListenerFields) -> ListenerFields {
        if let (AccessList::Found(list), Some(named)) =
            (&observed.parts.access_list, fields.get_mut(&ListenerField::AclId))
            && *named == list.name
        {
            named.clone_from(&list.id);
        }
        fields
    }

    fn may_keep_ranges(parts: &ObservedParts, owner: &Owner) -> bool {
        match &parts.access_list {
            AccessList::Unread | AccessList::Absent => false,
            AccessList::Unknown => true,
            AccessList::Found(list) => owner.owns_access_list(&list.name, &list.tags),
        }
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
