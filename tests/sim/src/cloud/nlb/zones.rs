//! Where a network load balancer stands: zones, vSwitches and addresses.

use std::collections::BTreeSet;

use super::super::account::{Account, contains};
use super::super::protocol::{ApiError, Params};
use super::objects::{NetworkLoadBalancer, NetworkZone};
use super::{denied, illegal, missing, not_found};

/// The zones that a call gives, without the addresses that the cloud chooses.
pub(super) fn given(params: &Params) -> Result<Vec<NetworkZone>, ApiError> {
    let mut zones = Vec::new();
    for index in params.indexes("ZoneMappings") {
        let name = |field: &str| format!("ZoneMappings.{index}.{field}");
        let text = |field: &str| params.get(&name(field)).unwrap_or_default().to_owned();
        if params.values.get(&name("PrivateIPv4Address")).is_some_and(String::is_empty) {
            return Err(illegal("PrivateIPv4Address"));
        }
        zones.push(NetworkZone {
            zone: params.get(&name("ZoneId")).ok_or_else(|| missing("ZoneId"))?.into(),
            vswitch: params.get(&name("VSwitchId")).ok_or_else(|| missing("VSwitchId"))?.into(),
            private_ip: text("PrivateIPv4Address"),
            allocation_id: text("AllocationId"),
            ipv6: text("Ipv6Address"),
            public_ip: String::new(),
        });
    }
    Ok(zones)
}

/// Whether a load balancer can stand in these zones of a VPC.
pub(super) fn check(account: &Account, vpc: &str, zones: &[NetworkZone]) -> Result<(), ApiError> {
    let distinct: BTreeSet<&str> = zones.iter().map(|it| it.zone.as_str()).collect();
    if distinct.len() < zones.len() {
        let message = "The operation failed because of DuplicateZones.";
        return Err(ApiError::new(400, "OperationFailed.DuplicateZones.", message));
    }
    if zones.len() < account.zones.len().min(2) || zones.len() > 10 {
        return Err(ApiError::new(400, "InvalidZones", "The current zone list is illegal."));
    }
    for it in zones {
        let vswitch = account.vswitches.get(&it.vswitch).ok_or_else(|| not_found("VSwitch"))?;
        if vswitch.zone != it.zone {
            let message = "The ZoneId and VSwitchId are mismatched.";
            return Err(ApiError::new(400, "Mismatch.ZoneIdAndVswitchId", message));
        }
        if vswitch.vpc != vpc {
            return Err(ApiError::new(400, "Mismatch.VpcId", "The VpcId is mismatched."));
        }
    }
    Ok(())
}

/// Gives a new zone its addresses.
pub(super) fn settle_in(
    account: &mut Account,
    lb: (&str, &NetworkLoadBalancer),
    zone: &mut NetworkZone,
) -> Result<(), ApiError> {
    let (id, lb) = lb;
    let Some(vswitch) = account.vswitches.get(&zone.vswitch).cloned() else { return Err(not_found("VSwitch")) };
    if vswitch.available_ips == 0 {
        let message = "The specified resource of VSwitchIp is not enough.";
        return Err(ApiError::new(400, "ResourceNotEnough.VSwitchIp", message));
    }
    if zone.private_ip.is_empty() {
        zone.private_ip = account.fresh_address(Some(&zone.vswitch), "ipv4");
    } else if !contains(&vswitch.cidr, &zone.private_ip) {
        return Err(illegal("PrivateIPv4Address"));
    } else if !account.address_is_free(&zone.private_ip) {
        return Err(ApiError::new(400, "ResourceInUse.IP", "The specified resource of IP is in use."));
    }
    if lb.ip_version == "DualStack" {
        if vswitch.ipv6_cidr.is_empty() {
            let message = "The operation failed because of vSwitchNotSupportIpv6.";
            return Err(ApiError::new(400, "OperationFailed.vSwitchNotSupportIpv6", message));
        }
        if zone.ipv6.is_empty() {
            zone.ipv6 = account.fresh_address(None, "ipv6");
        }
    }
    go_public(account, id, &lb.address_type, zone)?;
    if let Some(vswitch) = account.vswitches.get_mut(&zone.vswitch) {
        vswitch.available_ips = vswitch.available_ips.saturating_sub(1);
    }
    Ok(())
}

/// Gives a zone its public address: the elastic address that it names, or one that the cloud chooses.
pub(super) fn go_public(
    account: &mut Account,
    id: &str,
    address_type: &str,
    zone: &mut NetworkZone,
) -> Result<(), ApiError> {
    if address_type != "Internet" {
        return if zone.allocation_id.is_empty() { Ok(()) } else { Err(denied("IntranetLoadBalancer")) };
    }
    if zone.allocation_id.is_empty() {
        zone.public_ip = account.fresh_address(None, "ipv4");
        return Ok(());
    }
    let eip = account.eips.get_mut(&zone.allocation_id).ok_or_else(|| not_found("AllocationId"))?;
    if !eip.instance.is_empty() && eip.instance != id {
        let message = "The specified resource of AllocationId is already associated.";
        return Err(ApiError::new(400, "ResourceAlreadyAssociated.AllocationId", message));
    }
    eip.instance = id.into();
    eip.instance_type = "Nlb".into();
    zone.public_ip.clone_from(&eip.address);
    Ok(())
}

/// Frees the public address of a zone.
pub(super) fn leave_public(account: &mut Account, zone: &mut NetworkZone) {
    zone.public_ip.clear();
    let allocation = std::mem::take(&mut zone.allocation_id);
    if let Some(eip) = account.eips.get_mut(&allocation) {
        eip.instance.clear();
        eip.instance_type.clear();
    }
}

/// Frees all addresses of a zone.
pub(super) fn leave(account: &mut Account, mut zone: NetworkZone) {
    leave_public(account, &mut zone);
    account.free_address(&zone.vswitch);
}
