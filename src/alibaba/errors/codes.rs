//! Error codes by meaning, as data. Codes are compared without regard to case: services differ in the capitals of the
//! same code.

use CodePattern::{Ends, Frames, Has, Is, Starts};

use crate::alibaba::FaultKind::{
    self, Bug, Busy, Capacity, Credential, Denied, Exists, InUse, Quota, Rejected, Transient,
};
use crate::alibaba::actions::Object;
use crate::alibaba::endpoints::CloudProduct;

/// How a code is recognised.
#[derive(Clone, Copy, Debug)]
pub(super) enum CodePattern {
    Is(&'static str),
    Starts(&'static str),
    Ends(&'static str),
    Has(&'static str),
    /// Start and end.
    Frames(&'static str, &'static str),
}

impl CodePattern {
    /// `code` is in lower case.
    pub(super) fn matches(self, code: &str) -> bool {
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

/// Rejected by flow control; comes with status 400, 403, 429 or 503.
pub(super) const THROTTLED: &[CodePattern] =
    &[Starts("Throttling"), Is("Rejected.Throttling"), Ends("ExceedsFrequency")];

/// Unusable credentials, wrong clock, and requests that this program signed wrongly.
pub(super) const CREDENTIALS: &[(CodePattern, FaultKind)] = &[
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
pub(super) const CURED_BY_NEW_CREDENTIALS: &[CodePattern] = &[
    Is("InvalidAccessKeyId"),
    Starts("InvalidAccessKeyId."),
    Starts("InvalidSecurityToken"),
    Is("MissingSecurityToken"),
];

/// General codes that only the message tells apart: (product, code, part of the message, what is missing). They hold for
/// actions that address the missing object.
pub(super) const MESSAGES: &[(CloudProduct, Option<&str>, &str, Object)] = &[
    (CloudProduct::Slb, None, "loadbalancerid does not exist", Object::LoadBalancer),
    (CloudProduct::Slb, Some("InvalidParameter"), "the specified vservergroupid does not exist", Object::ServerGroup),
    (CloudProduct::Slb, None, "the specified resource does not exist", Object::Listener),
    (CloudProduct::Vpc, Some("InvalidRouteEntry"), "not exist", Object::RouteEntry),
];

/// Codes that mean something else for some actions.
pub(super) const BY_ACTION: &[(&str, &[&str], FaultKind)] = &[
    ("Operation.NotAllowed", &["StartLoadBalancerListener", "DeleteLoadBalancerListener"], Busy),
    ("InvalidParameter.Domain", &["CreateDomainExtension"], Exists),
    ("Forbbiden", &["DeleteRouteEntries"], Rejected),
    ("InnerRateLimiting", &[], Busy),
    // Servers leave the groups of network load balancers when their instances are released.
    ("ResourceNotFound.BackendServer", &["RemoveServersFromServerGroup", "UpdateServerGroupServersAttribute"], Busy),
    ("ResourceInUse.IP", &[], Rejected),
];

/// Absent objects. For an action that addresses the object: [`FaultKind::Gone`]; where it is only referred to: [`FaultKind::Rejected`].
pub(super) const MISSING: &[(&str, Object)] = &[
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
    ("VPC_ROUTER_ENTRY_NOT_EXIST", Object::RouteEntry),
    ("VPC_ROUTE_ENTRY_NOT_EXIST", Object::RouteEntry),
    ("InvalidLoadBalancerId.NotFound", Object::LoadBalancer),
    ("ResourceNotFound.LoadBalancer", Object::LoadBalancer),
    ("ResourceNotExist", Object::LoadBalancer),
    ("ResourceNotFound.Listener", Object::Listener),
    ("ResourceNotFound.VServerGroup", Object::ServerGroup),
    ("ResourceNotFound.ServerGroup", Object::ServerGroup),
    ("InvalidParam.VServerGroupId", Object::ServerGroup),
    ("ResourceNotFound.Certificate", Object::Certificate),
    ("CertificateNotExist", Object::Certificate),
    ("ServerCertificateId.NotFound", Object::Certificate),
    ("InvalidParameter.DomainExtensionId", Object::DomainExtension),
    ("AclNotExist", Object::AccessList),
    ("InvalidSecurityGroupId.NotFound", Object::SecurityGroup),
    ("InvalidSecurityGroup.NotFound", Object::SecurityGroup),
    ("InvalidParam.SecurityGroupRuleId", Object::SecurityRule),
    ("InvalidSecurityGroupRuleId.NotFound", Object::SecurityRule),
    ("InvalidSecurityGroupRule.RuleNotExist", Object::SecurityRule),
    ("SecurityGroupRule.NotFound", Object::SecurityRule),
    ("Zone.NotExists", Object::PrivateZone),
    ("Zone.Invalid.Id", Object::PrivateZone),
    ("Zone.Invalid.UserId", Object::PrivateZone),
    ("Record.NotExists", Object::ZoneRecord),
];

/// Server or network trouble. A write that is answered so may have had its effect.
pub(super) const TRANSIENT: &[CodePattern] = &[
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

/// Codes that no family covers, or that another family would claim. What a family covers is not repeated here.
pub(super) const KNOWN: &[(FaultKind, &[CodePattern])] = &[
    (
        Busy,
        &[
            Is("OperationConflict"),
            Is("InvalidOperation.Conflict"),
            Is("Operation.Conflict"),
            Is("TaskConflict"),
            Starts("TaskConflict."),
            Is("VPC_ROUTE_ENTRY_STATUS_ERROR"),
            Is("Operation.Blocking"),
            Is("OperationFailed.DistibuteLock"),
            Is("OperationFailed.ConcurrentOperation"),
            Is("OperationFailed.RouteEntryUnstable"),
            Is("LockFailed"),
            Is("OperationFailed.ResourceGroupStatusCheckFail"),
            Is("OperationFailed.ListenerStatusNotSupport"),
            Is("Operation.Deny"),
            Is("ServiceIsStopping"),
            Is("OperationFailed.EcsMigrating"),
            Is("InvalidStatus.InstanceIsMigrating"),
            Is("IncorrcetRouteEntryStatus"),
            Is("InvalidStatus"),
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
            Is("OrderFailed.ConcurrentOperate"),
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
            Is("OperationFailed.CreateRouteEntryWithSameDestinationCidrBlock"),
            Is("InvalidParameter.ListenerPortConflict"),
            Is("ListenerPortConflict"),
            Is("ListenerAlreadyExists"),
            Is("Record.Invalid.Conflict"),
            Starts("ResourceAlreadyAssociated."),
            // It is as the call wants it, or in between.
            Starts("ResourceNotAssociated."),
            Is("DuplicatedParam.Server"),
            Is("OperationDenied.AddressTypeNotChanged"),
            Is("OperationDenied.ZoneMappingsNotChanged"),
            Is("OperationDenied.Ipv6IntranetInstance"),
            Is("Conflict.Port"),
            Is("Conflict.SecurityGroup"),
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
            Is("OperationFailed.InsufficientResources"),
            Is("OperationDenied.NoStock"),
            Starts("ResourceNotAvailible."),
            Is("PRODUCT.NOT_AVAILABLE_IZ"),
        ],
    ),
    (Quota, &[Is("AclEntryExceedLimit"), Is("OperationForbidden.QuotaLimit")]),
    (
        Denied,
        &[
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
            Is("OrderFailed"),
            Is("CommodityCodeNotExists"),
            Is("InsufficientAvailableQuota"),
            Is("OperationFailed.CashBookInsufficient"),
            // The instance was stopped by the user or locked.
            Is("LbStatusNotSupport"),
            // Pending until midnight.
            Is("INSTANCE_HAS_INACTIVE_CHANGE"),
            // Looks like an absent object, but is a matter of configuration.
            Is("NotExist.ResourceGroup"),
            // A backend or next hop that is no longer there; the next observation shows which.
            Is("ResourceNotFound.vServers"),
            Is("IncorrectStatus.RSByPassToas"),
            Is("Certkey.Forbidden"),
        ],
    ),
    // One port carries two protocols, and the request did not say which it meant.
    (Bug, &[Is("TooManyListeners")]),
];

/// Families, for codes that are in no table.
pub(super) const FAMILIES: &[(FaultKind, &[CodePattern])] = &[
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
