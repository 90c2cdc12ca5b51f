//! What the vendor's error codes mean, as data.
//!
//! Codes are compared without regard to case: services differ in the capitals of the same code. The tables are tried in
//! the order in which this file has them. What no table knows is [`FaultKind::Rejected`], which callers retry slowly
//! but for ever, so that an unknown code stops nothing for good. The HTTP status alone never means
//! [`FaultKind::Gone`]: a gateway's 404 proves nothing about an object.

use super::FaultKind::{
    self, Ambiguous, Bug, Busy, Capacity, Credential, Denied, Exists, Gone, InUse, Quota, Rejected, Throttled,
    Transient,
};
use super::actions::{Action, Object};
use super::endpoints::Product;

/// A call was a dry run, and would have succeeded.
pub(super) const DRY_RUN_PASSED: &str = "DryRunOperation";

/// How a code is recognised.
#[derive(Clone, Copy, Debug)]
enum Code {
    Is(&'static str),
    Starts(&'static str),
    Ends(&'static str),
    Has(&'static str),
    /// Start and end.
    Frames(&'static str, &'static str),
}

impl Code {
    /// `code` is in lower case.
    fn matches(self, code: &str) -> bool {
        let starts = |part: &str| code.starts_with(&part.to_ascii_lowercase());
        let ends = |part: &str| code.ends_with(&part.to_ascii_lowercase());
        match self {
            Self::Is(whole) => code.eq_ignore_ascii_case(whole),
            Self::Starts(part) => starts(part),
            Self::Ends(part) => ends(part),
            Self::Has(part) => code.contains(&part.to_ascii_lowercase()),
            Self::Frames(first, last) => starts(first) && ends(last),
        }
    }
}

use Code::{Ends, Frames, Has, Is, Starts};

/// Rejected by flow control; comes with status 400, 403, 429 or 503.
const THROTTLED: &[Code] = &[Starts("Throttling"), Is("Rejected.Throttling"), Ends("ExceedsFrequency")];

/// Unusable credentials, wrong clock, and requests that this program signed wrongly.
const CREDENTIALS: &[(Code, FaultKind)] = &[
    (Is("InvalidAccessKeyId"), Credential),
    (Starts("InvalidAccessKeyId."), Credential),
    (Starts("InvalidSecurityToken"), Credential),
    (Is("MissingSecurityToken"), Credential),
    (Is("SignatureDoesNotMatch"), Credential),
    (Is("InvalidTimeStamp.Expired"), Credential),
    (Is("IncompleteSignature"), Bug),
    (Is("MissingSignature"), Bug),
    (Is("InvalidTimeStamp.Format"), Bug),
    (Is("IllegalTimestamp"), Bug),
    (Is("SignatureNonceUsed"), Transient),
];

/// Codes that new credentials may cure.
const CURED_BY_NEW_CREDENTIALS: &[Code] = &[
    Is("InvalidAccessKeyId"),
    Starts("InvalidAccessKeyId."),
    Starts("InvalidSecurityToken"),
    Is("MissingSecurityToken"),
];

/// General codes that only the message tells apart: (product, code, part of the message, what is missing).
const MESSAGES: &[(Product, Option<&str>, &str, Object)] = &[
    (Product::Slb, None, "loadbalancerid does not exist", Object::LoadBalancer),
    (Product::Slb, Some("InvalidParameter"), "the specified vservergroupid does not exist", Object::ServerGroup),
    (Product::Slb, None, "the specified resource does not exist", Object::Listener),
];

/// Codes that mean something else for some actions.
const BY_ACTION: &[(&str, &[&str], FaultKind)] = &[
    ("Operation.NotAllowed", &["StartLoadBalancerListener", "DeleteLoadBalancerListener"], Busy),
    ("InvalidParameter.Domain", &["CreateDomainExtension"], Exists),
    ("Forbbiden", &["DeleteRouteEntries"], Rejected),
    ("InnerRateLimiting", &[], Busy),
];

/// Absent objects. For an action that addresses the object: [`Gone`]; where it is only referred to: [`Rejected`].
const MISSING: &[(&str, Object)] = &[
    ("InvalidInstanceId.NotFound", Object::Instance),
    ("InvalidInstanceIds.NotFound", Object::Instance),
    ("InvalidEcsId.NotFound", Object::Instance),
    ("Forbidden.InstanceNotFound", Object::Instance),
    ("Instance.Notfound", Object::Instance),
    ("InvalidEniId.NotFound", Object::Eni),
    ("InvalidVpcId.NotFound", Object::Vpc),
    ("InvalidVpc.NotFound", Object::Vpc),
    ("Forbidden.VpcNotFound", Object::Vpc),
    ("ResourceNotFound.VPC", Object::Vpc),
    ("InvalidVSwitchId.NotFound", Object::VSwitch),
    ("InvalidRouteTable.NotFound", Object::RouteTable),
    ("InvalidRouteTableId.NotFound", Object::RouteTable),
    ("InvalidRouteEntry.NotFound", Object::RouteEntry),
    ("InvalidRouteEntryId.NotFound", Object::RouteEntry),
    ("InvalidRouteEntry", Object::RouteEntry),
    ("VPC_ROUTE_ENTRY_NOT_EXIST", Object::RouteEntry),
    ("VPC_ROUTE_ENTRY_NOT_FOUND", Object::RouteEntry),
    ("InvalidLoadBalancerId.NotFound", Object::LoadBalancer),
    ("ResourceNotFound.LoadBalancer", Object::LoadBalancer),
    ("ResourceNotExist", Object::LoadBalancer),
    ("ResourceNotFound.Listener", Object::Listener),
    ("ResourceNotFound.VServerGroup", Object::ServerGroup),
    ("InvalidParam.VServerGroupId", Object::ServerGroup),
    ("ResourceNotFound.Certificate", Object::Certificate),
    ("CertificateNotExist", Object::Certificate),
    ("ServerCertificateId.NotFound", Object::Certificate),
    ("InvalidParameter.DomainExtensionId", Object::DomainExtension),
];

/// Server or network trouble. A write that is answered so may have had its effect.
const TRANSIENT: &[Code] = &[
    Is("ServiceUnavailable"),
    Is("InternalError"),
    Is("Internal.Error"),
    Is("VPC.ERROR"),
    Is("InternalInvokeError"),
    Is("SystemError"),
    Is("UnknownError"),
    Is("SystemBusy"),
    Is("OperationFailed.SystemBusy"),
    Is("System.ServiceBusy"),
    Is("System.Busy"),
    Is("VpcSystemBusy"),
    Is("LocationServiceTimeout"),
    Is("SDK.ServerUnreachable"),
    Is("RequestTimeout"),
    Is("CreateOrderTimeout"),
    Is("QueryOrderError"),
    Is("OperationFailed.CreateOrderError"),
    Is("TagInvokeError"),
    Is("OperationFailed.GetXipFailed"),
    Is("OperationFailed.NotifyCenCreate"),
    Is("OperationFailed.NotifyCenDelete"),
    Is("OperationFailed.QueryCenEntry"),
    Is("AllocateVpcInstanceFailed"),
    Is("OperationFailed.InvokeLingXiaoFailed"),
    Is("OperationFailed.InvokeProxyFailed"),
    Is("IllegalParam.NextTokenExpired"),
    Frames("Query", "Failed"),
];

/// Everything that is known by its exact code or by the start of a family that other patterns would claim.
const KNOWN: &[(FaultKind, &[Code])] = &[
    (
        Busy,
        &[
            Is("OperationConflict"),
            Is("InvalidOperation.Conflict"),
            Is("Operation.Conflict"),
            Is("TaskConflict"),
            Starts("TaskConflict."),
            Is("VPC_TASK_CONFLICT"),
            Is("EipOperation.TooFrequently"),
            Is("Operation.Blocking"),
            Is("OperationFailed.DistibuteLock"),
            Is("OperationFailed.ConcurrentOperation"),
            Is("OperationFailed.RouteEntryUnstable"),
            Is("LockFailed"),
            Is("OperationFailed.ResourceGroupStatusCheckFail"),
            Is("OperationFailed.ResourceIsConfiguring"),
            Is("OperationFailed.ListenerStatusNotSupport"),
            Is("Operation.Deny"),
            Is("LbStatusNotSupport"),
            Is("BackendServer.configuring"),
            Is("BackendServerProcessing"),
            Is("ServiceIsConfiguring"),
            Is("ServiceIsStopping"),
            Is("OperationBusy"),
            Is("ListenerProcessing"),
            Is("OperationFailed.ServiceGroupProcessing"),
            Is("VServerGroupProcessing"),
            Is("DomainExtensionProcessing"),
            Is("AclEntryProcessing"),
            Is("TLSPolicyConfiguring"),
            Is("OperationFailed.EipStatusInvalid"),
            Is("OperationFailed.EcsMigrating"),
            Is("InvalidStatus.InstanceIsMigrating"),
            Is("IncorrcetRouteEntryStatus"),
            Is("InvalidStatus"),
            Is("InvalidVBRStatus"),
            Is("InvalidBindingStatus"),
            Is("InvalidStatus.EcsStatusNotSupport"),
            Is("InvalidStatus.EniStatusNotSupport"),
            Is("InvalidStatus.NotAllow"),
            Is("NetworkStatus.Modifying"),
            Is("ResourceStatus.Error"),
            Is("InvalidOperation.InvalidEniState"),
            Is("InvalidOperation.InvalidEcsState"),
            Is("OperationFailed.OperationLocked"),
            Is("DependencyViolation.SLBConfiguring"),
            Is("FrequentPurchase.EIP"),
            Is("OrderFailed.ConcurrentOperate"),
            // An earlier call with the same client token has not finished.
            Is("LastTokenProcessing"),
            Is("OperationFailed.LastTokenProcessing"),
            Is("OperationFailed.IdempotentTokenProcessing"),
            Is("TOKEN_PROCESSING"),
            Is("IdempotentProcessing"),
            Is("Idempotence.Processing"),
            Is("LastRequestProcessing"),
            Is("LastOrderProcessing"),
            Is("OperationFailed.TokenIsProcessing"),
            Is("IdempotenceProcessing"),
        ],
    ),
    (
        Exists,
        &[
            // The client token was used with other parameters: something was made in this place before.
            Is("IdempotentParameterMismatch"),
            Is("IdempotenceParamNotMatch"),
            Is("Idempotence.SignatureMismatch"),
            Is("IdempotenceSignatureMismatch"),
            Is("LX_REQUEST_TOKEN_CONFLICT"),
            Is("IdempotentFailed"),
            Is("InvalidCIDRBlock.Duplicate"),
            Is("InvalidRouteEntry.Duplicate"),
            Is("RouteConflict.AlreadyExist"),
            Is("RouterEntryConflict.Duplicated"),
            Is("Duplicated.VpcNextHop"),
            Is("ResourceAlreadyAssociated.PrefixList"),
            Is("OperationFailed.CreateRouteEntryWithSameDestinationCidrBlock"),
            Is("VPC_ROUTE_ENTRY_CIDR_BLOCK_DUPLICATE"),
            Is("InvalidParameter.ListenerPortConflict"),
            Is("ListenerPortConflict"),
            Is("ListenerAlreadyExists"),
            Starts("ResourceAlreadyAssociated."),
            Starts("ResourceAlreadyExist"),
            Is("InvalidInstanceId.AlreadyExists"),
            Is("InvalidAssociation.Duplicated"),
        ],
    ),
    (
        InUse,
        &[
            Is("RspoolVipExist"),
            Is("OperationFailed.ServerGroupInUse"),
            Is("ListenerForwardExist"),
            Is("DomainExtensionRelatedRuleExist"),
            Starts("ResourceInUse."),
            Is("DependencyViolation"),
            Starts("DependencyViolation."),
            Is("CertificateAndPrivateKeyIsRefered"),
        ],
    ),
    (
        Capacity,
        &[
            Is("VSwitchAvailableIpNotExist"),
            Is("SubnetIpExhaust"),
            Starts("ResourceNotEnough."),
            Is("InvalidVSwitchId.IpNotEnough"),
            Is("QuotaExceeded.PrivateIpAddress"),
            Is("ObtainIpFail"),
            Is("AssociateIpFail"),
            Is("OperationFailed.ZoneResourceLimit"),
            Is("OperationFailed.RegionResourceLimit"),
            Is("OperationFailed.InsufficientResources"),
            Is("OperationDenied.NoStock"),
            Starts("ResourceNotAvailible."),
            Is("PRODUCT.NOT_AVAILABLE_IZ"),
        ],
    ),
    (
        Quota,
        &[
            Is("AuthorizationLimitExceed"),
            Is("InstanceBackendServerNumberOverLimit"),
            Is("AclEntryExceedLimit"),
            Is("OperationForbidden.QuotaLimit"),
        ],
    ),
    (
        Denied,
        &[
            Is("UnauthorizedZone"),
            Is("UnauthorizedRegion"),
            Is("InvalidOperation.SecurityGroupNotAuthorized"),
            Is("OperationForbidden.AccountRiskReject"),
            Is("HighRiskOperationDenied"),
            Is("OperationFailed.InvalidAccount"),
            Is("EntityNotExist.Role"),
            Starts("AuthenticationFail."),
            Ends(".ServiceLinkedRoleNotExist"),
        ],
    ),
    (
        Rejected,
        &[
            // The account must be paid for.
            Is("AccountHasArrearage"),
            Is("OrderFailed"),
            Is("CommodityCodeNotExists"),
            Is("InsufficientAvailableQuota"),
            Is("OperationFailed.CashBookInsufficient"),
            // Protected, or another product's.
            Is("OperationDenied.DeleteProtectionIsOn"),
            Is("InvalidOperation.DeletionProtection"),
            Is("InvalidOperation.ResourceManagedByCloudProduct"),
            // Pending until midnight.
            Is("INSTANCE_HAS_INACTIVE_CHANGE"),
            // Looks like an absent object, but is a matter of region, version or configuration.
            Is("InvalidRegionId.NotFound"),
            Is("InvalidResourceGroupId.NotFound"),
            Is("NotExist.ResourceGroup"),
            Is("InvalidAction.NotFound"),
            Is("InvalidApi.NotFound"),
            Is("InvalidProduct.NotFound"),
            // A backend or next hop that is no longer there; the next observation shows which.
            Is("InvalidServerId.NotExist"),
            Is("ResourceNotFound.vServers"),
            Is("InvalidNextHop.NotFound"),
            Is("InvalidNextHopId.NotFound"),
            Is("InvalidInstanId.NotFound"),
            Is("InvalidNetworkInterface.NotFound"),
            Is("IncorrectStatus.RSByPassToas"),
            Is("Certkey.Forbidden"),
        ],
    ),
    // One port carries two protocols, and the request did not say which it meant.
    (Bug, &[Is("TooManyListeners")]),
];

/// Families, for codes that are in no table.
const FAMILIES: &[(FaultKind, &[Code])] = &[
    (
        Busy,
        &[
            Starts("IncorrectStatus"),
            Starts("ResourceInConfiguring"),
            Starts("ResourceInCreating"),
            Starts("Conflict"),
            Starts("IncorrectBusinessStatus"),
            Frames("Incorrect", "Status"),
            Starts("IncorrectInstanceStatus."),
            Ends("Processing"),
            Ends("Configuring"),
            Ends("Busy"),
            Ends("_TASK_CONFLICT"),
        ],
    ),
    (
        Quota,
        &[
            Starts("QuotaExceed"),
            Starts("ResourceQuotaExceeded"),
            Starts("QuotaInsufficient"),
            Starts("QuotaLimit"),
            Starts("CountLimitExceed"),
            Starts("SizeLimitExceeded"),
            Ends("OverLimit"),
            Ends("OverQuota"),
            Ends("LimitExceed"),
            Ends("LimitExceeded"),
            Has("_QUOTA_"),
        ],
    ),
    (Exists, &[Ends("_DUPLICATE")]),
    (Capacity, &[Starts("ResourceNotEnough"), Ends("ResourceLimit")]),
    (Denied, &[Starts("Forbidden"), Starts("Forbbiden"), Starts("NoPermission"), Starts("Unauthorized")]),
    (
        Rejected,
        &[
            Starts("PAY."),
            Starts("PAYFOR."),
            Has("InsufficientBalance"),
            Has("UnpaidBill"),
            Has("Arrearage"),
            Starts("OperationDenied"),
            Starts("OperationDenyed"),
            Starts("OperationUnsupported"),
            Starts("OperationNotSupport"),
            Starts("UnsupportedFeature"),
            Starts("Mismatch"),
            Starts("DuplicatedParam"),
            Starts("Invalid"),
            Starts("IllegalParam"),
            Starts("Missing"),
            Starts("Unsupported"),
        ],
    ),
];

/// How to react to an error answer. `code` may be empty if the answer was not the vendor's.
#[must_use]
pub(super) fn classify(action: &Action, status: u16, code: &str, message: &str) -> FaultKind {
    let code = code.trim().to_ascii_lowercase();
    let unknown_fate = if action.writes { Ambiguous } else { Transient };
    if status == 429 || THROTTLED.iter().any(|pattern| pattern.matches(&code)) {
        return Throttled;
    }
    if !code.is_empty() {
        if let Some((_, kind)) = CREDENTIALS.iter().find(|(pattern, _)| pattern.matches(&code)) {
            return *kind;
        }
        if let Some(object) = missing_object(action.product, &code, message) {
            return if action.addresses.contains(&object) { Gone } else { Rejected };
        }
        if let Some(kind) = by_action(action, &code) {
            return kind;
        }
        if TRANSIENT.iter().any(|pattern| pattern.matches(&code)) {
            return unknown_fate;
        }
        for table in [KNOWN, FAMILIES] {
            if let Some((kind, _)) = table.iter().find(|(_, codes)| codes.iter().any(|pattern| pattern.matches(&code)))
            {
                return *kind;
            }
        }
    }
    match status {
        401 => Denied,
        408 | 500.. => unknown_fate,
        409 => Busy,
        _ => Rejected,
    }
}

/// Whether the call may succeed with new credentials.
#[must_use]
pub(super) fn cured_by_new_credentials(code: &str) -> bool {
    let code = code.trim().to_ascii_lowercase();
    CURED_BY_NEW_CREDENTIALS.iter().any(|pattern| pattern.matches(&code))
}

fn by_action(action: &Action, code: &str) -> Option<FaultKind> {
    let applies = |actions: &[&str]| actions.is_empty() || actions.contains(&action.name);
    BY_ACTION.iter().find(|(is, on, _)| code.eq_ignore_ascii_case(is) && applies(on)).map(|(_, _, kind)| *kind)
}

fn missing_object(product: Product, code: &str, message: &str) -> Option<Object> {
    let message = message.to_ascii_lowercase();
    let by_message = MESSAGES.iter().find(|(of, general, part, _)| {
        *of == product && general.is_none_or(|general| code.eq_ignore_ascii_case(general)) && message.contains(part)
    });
    let by_code = || MISSING.iter().find(|(is, _)| code.eq_ignore_ascii_case(is)).map(|(_, object)| *object);
    by_message.map(|(_, _, _, object)| *object).or_else(by_code)
}

/// The longest message that is passed on.
const MESSAGE_LIMIT: usize = 600;

/// The vendor's message without what could help to forge a request, and not longer than people read.
///
/// A refused signature is answered with the whole text that the server signed, which holds the key id and the token.
#[must_use]
pub(super) fn without_secrets(message: &str) -> String {
    const ECHO: &str = "string to sign";
    let end = message.to_ascii_lowercase().find(ECHO).map_or(message.len(), |start| start + ECHO.len());
    // Lower-casing ASCII keeps byte positions, so `end` is a boundary in the original too.
    let mut clean = String::new();
    let mut word = String::new();
    let flush = |word: &mut String, clean: &mut String| {
        clean.push_str(if looks_secret(word) { "<redacted>" } else { word });
        word.clear();
    };
    for character in message[..end].chars() {
        if character.is_ascii_alphanumeric() || matches!(character, '+' | '/' | '=' | '.' | '_' | '-' | '%') {
            word.push(character);
        } else {
            flush(&mut word, &mut clean);
            clean.push(if character.is_control() { ' ' } else { character });
        }
    }
    flush(&mut word, &mut clean);
    if end < message.len() {
        clean.push_str(" <redacted>");
    }
    match clean.char_indices().nth(MESSAGE_LIMIT) {
        Some((cut, _)) => format!("{}...", &clean[..cut]),
        None => clean,
    }
}

/// Key ids, tokens, and parameters that carry them.
fn looks_secret(word: &str) -> bool {
    let lower = word.to_ascii_lowercase();
    let key_id = word.contains("LTAI") || word.contains("STS.") || word.starts_with("TMP.");
    let parameter = ["signature=", "securitytoken=", "accesskeysecret=", "signature%3d", "securitytoken%3d"];
    let opaque = word.len() >= 60
        && word.bytes().any(|byte| byte.is_ascii_digit())
        && word.bytes().any(|byte| byte.is_ascii_uppercase());
    key_id || opaque || parameter.iter().any(|name| lower.contains(name))
}

#[cfg(test)]
mod tests {
    use super::super::actions;
    use super::*;

    #[test]
    fn each_class_of_codes_has_its_reaction() {
        let read = actions::DESCRIBE_LOAD_BALANCER.0;
        let create = actions::CREATE_LOAD_BALANCER.0;
        let delete = actions::DELETE_LOAD_BALANCER.0;
        let routes = actions::CREATE_ROUTE_ENTRIES.0;
        let cases: &[(&Action, u16, &str, FaultKind)] = &[
            (read, 400, "Throttling.User", Throttled),
            (read, 503, "Throttling.Api", Throttled),
            (create, 429, "", Throttled),
            (create, 503, "Throttling", Throttled),
            (read, 404, "InvalidAccessKeyId.NotFound", Credential),
            (read, 400, "InvalidSecurityToken.MismatchWithAccessKey", Credential),
            (read, 400, "SignatureDoesNotMatch", Credential),
            (read, 400, "InvalidTimeStamp.Expired", Credential),
            (read, 400, "IncompleteSignature", Bug),
            (read, 404, "InvalidLoadBalancerId.NotFound", Gone),
            (delete, 400, "invalidloadbalancerid.notfound", Gone),
            (actions::ADD_BACKENDS.0, 400, "ResourceNotFound.VServerGroup", Gone),
            (actions::CREATE_TCP_LISTENER.0, 400, "ResourceNotFound.VServerGroup", Rejected),
            (actions::DELETE_LISTENER.0, 404, "ResourceNotFound.Listener", Gone),
            (actions::DELETE_ROUTE_ENTRIES.0, 400, "InvalidRouteEntry.NotFound", Gone),
            (actions::DESCRIBE_VPC.0, 404, "InvalidVpcID.NotFound", Gone),
            (create, 404, "InvalidVSwitchId.NotFound", Rejected),
            (routes, 404, "InvalidNextHopId.NotFound", Rejected),
            (read, 404, "InvalidAction.NotFound", Rejected),
            (read, 404, "", Rejected),
            (delete, 404, "SomethingNew.NotFound", Rejected),
            (read, 500, "InternalError", Transient),
            (create, 500, "InternalError", Ambiguous),
            (create, 400, "CreateOrderTimeout", Ambiguous),
            (create, 400, "SystemBusy", Ambiguous),
            (create, 502, "", Ambiguous),
            (read, 504, "", Transient),
            (routes, 400, "TaskConflict", Busy),
            (routes, 400, "IncorrectVSwitchStatus", Busy),
            (actions::MODIFY_NETWORK_INTERFACE.0, 409, "InvalidOperation.Conflict", Busy),
            (actions::MODIFY_NETWORK_INTERFACE.0, 409, "SomethingNew", Busy),
            (create, 400, "OperationFailed.TokenIsProcessing", Busy),
            (actions::START_LISTENER.0, 400, "Operation.NotAllowed", Busy),
            (actions::SET_SPEC.0, 400, "Operation.NotAllowed", Rejected),
            (actions::SET_TCP_LISTENER.0, 400, "ServiceIsConfiguring", Busy),
            (actions::SET_TCP_LISTENER.0, 400, "InnerRateLimiting", Busy),
            (create, 400, "LX_REQUEST_TOKEN_CONFLICT", Exists),
            (routes, 400, "InvalidCIDRBlock.Duplicate", Exists),
            (routes, 200, "VPC_ROUTE_ENTRY_CIDR_BLOCK_DUPLICATE", Exists),
            (actions::CREATE_TCP_LISTENER.0, 400, "ListenerAlreadyExists", Exists),
            (actions::CREATE_DOMAIN_EXTENSION.0, 400, "InvalidParameter.Domain", Exists),
            (actions::DELETE_GROUP.0, 400, "RspoolVipExist", InUse),
            (actions::ADD_BACKENDS.0, 400, "InstanceBackendServerNumberOverLimit", Quota),
            (routes, 400, "QuotaExceeded", Quota),
            (create, 400, "VSwitchAvailableIpNotExist", Capacity),
            (create, 400, "OperationFailed.ZoneResourceLimit", Capacity),
            (read, 403, "Forbidden.RAM", Denied),
            (read, 403, "NoPermission", Denied),
            (create, 400, "NoPermission.AliyunServiceRoleForSlb", Denied),
            (read, 401, "", Denied),
            (actions::ASSUME_ROLE.0, 404, "EntityNotExist.Role", Denied),
            (create, 400, "PAY.INSUFFICIENT_BALANCE", Rejected),
            (delete, 400, "OperationDenied.DeleteProtectionIsOn", Rejected),
            (create, 400, "InvalidParameter.VSwitchId\t", Rejected),
            (create, 400, "NeverSeenBefore", Rejected),
            (actions::DELETE_LISTENER.0, 400, "TooManyListeners", Bug),
        ];
        for (action, status, code, expected) in cases {
            assert_eq!(classify(action, *status, code, ""), *expected, "{} {status} {code}", action.name);
        }
    }

    #[test]
    fn a_general_code_is_told_apart_by_its_message_only_where_that_is_documented() {
        let gone = "The specified VServerGroupId does not exist.";
        assert_eq!(classify(actions::ADD_BACKENDS.0, 400, "InvalidParameter", gone), Gone);
        assert_eq!(classify(actions::ADD_BACKENDS.0, 400, "InvalidParameter", "The parameter is not valid."), Rejected);
        assert_eq!(classify(actions::SET_NAME.0, 400, "X", "The specified LoadBalancerId does not exist."), Gone);
        assert_eq!(
            classify(actions::DESCRIBE_VPC.0, 400, "X", "The specified LoadBalancerId does not exist."),
            Rejected
        );
        assert_eq!(
            classify(actions::SET_NAME.0, 404, "InvalidAccessKeyId.NotFound", "The specified resource does not exist."),
            Credential
        );
    }

    #[test]
    fn messages_lose_keys_tokens_and_the_text_that_was_signed() {
        let message = "Specified signature is not matched with our calculation. server string to sign is:POST&%2F&AccessKeyId%3DLTAI5tTest";
        let clean = without_secrets(message);
        assert!(clean.starts_with("Specified signature is not matched"), "{clean}");
        assert!(!clean.contains("LTAI") && !clean.contains("AccessKeyId"), "{clean}");
        let token = "CAIS8wF1q6Ft5B2yfSjIr5bAtKg2nY9XfVbR3J1mQx0kP7uZlWcTyHsDgEaNoBvM";
        let clean = without_secrets(&format!("token {token} of STS.NUxyz is wrong, key LTAI5tAbC"));
        assert_eq!(clean, "token <redacted> of <redacted> is wrong, key <redacted>");
        let plain =
            "The specified LoadBalancerId lb-bp1b6c719dfa08ex does not exist, see https://api.aliyun.com/troubleshoot";
        assert_eq!(without_secrets(plain), plain);
        assert_eq!(without_secrets(&"ä".repeat(1000)).chars().count(), MESSAGE_LIMIT + 3);
    }
}
