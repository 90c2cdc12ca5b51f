//! Which host serves a product in a region.

use crate::config::checked::Endpoints;
use crate::config::file::{Network, Scheme};

/// A product of the vendor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CloudProduct {
    /// Instances and network interfaces.
    Ecs,
    /// Routes, vSwitches, EIPs.
    Vpc,
    /// Classic load balancers.
    Slb,
    /// Network load balancers.
    Nlb,
    /// Names inside of VPCs (PrivateZone).
    Pvtz,
    /// Temporary credentials.
    Sts,
}

impl CloudProduct {
    /// As in host names, in the configuration and in permissions.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ecs => "ecs",
            Self::Vpc => "vpc",
            Self::Slb => "slb",
            Self::Nlb => "nlb",
            Self::Pvtz => "pvtz",
            Self::Sts => "sts",
        }
    }

    /// Version of the product's API.
    pub const fn version(self) -> &'static str {
        match self {
            Self::Ecs => "2014-05-26",
            Self::Vpc => "2016-04-28",
            Self::Slb => "2014-05-15",
            Self::Nlb => "2022-04-30",
            Self::Pvtz => "2018-01-01",
            Self::Sts => "2015-04-01",
        }
    }
}

/// Public hosts that do not follow `<product>.<region>.aliyuncs.com`, as the vendor publishes them.
const EXCEPTIONS: &[(CloudProduct, &str, &str)] = &[
    (CloudProduct::Ecs, "cn-hangzhou-finance", "ecs.aliyuncs.com"),
    (CloudProduct::Ecs, "cn-shenzhen-finance-1", "ecs-cn-hangzhou.aliyuncs.com"),
    (CloudProduct::Slb, "cn-hangzhou", "slb.aliyuncs.com"),
    (CloudProduct::Slb, "cn-hangzhou-finance", "slb.aliyuncs.com"),
    (CloudProduct::Slb, "cn-shanghai-finance-1", "slb.aliyuncs.com"),
    (CloudProduct::Slb, "cn-shenzhen-finance-1", "slb.aliyuncs.com"),
    (CloudProduct::Sts, "cn-hangzhou-finance", "sts.aliyuncs.com"),
    (CloudProduct::Sts, "cn-shenzhen-finance-1", "sts.aliyuncs.com"),
];

/// Base URL of a product, with a slash at the end. `None` if the region cannot be part of a host name.
pub fn url(endpoints: &Endpoints, product: CloudProduct, region: &str) -> Option<String> {
    let scheme = if endpoints.scheme == Scheme::Http { "http" } else { "https" };
    Some(format!("{scheme}://{}/", host(endpoints, product, region)?))
}

fn host(endpoints: &Endpoints, product: CloudProduct, region: &str) -> Option<String> {
    let name = product.as_str();
    let stated = match product {
        CloudProduct::Ecs => &endpoints.ecs,
        CloudProduct::Vpc => &endpoints.vpc,
        CloudProduct::Slb => &endpoints.slb,
        CloudProduct::Nlb => &endpoints.nlb,
        CloudProduct::Pvtz => &endpoints.pvtz,
        CloudProduct::Sts => &endpoints.sts,
    };
    if let Some(host) = stated {
        return Some(host.clone());
    }
    let valid = |character: char| character.is_ascii_alphanumeric() || matches!(character, '-' | '_');
    if region.is_empty() || !region.chars().all(valid) {
        return None;
    }
    if product == CloudProduct::Pvtz {
        // One service for all regions.
        let suffix = if endpoints.network == Network::Vpc { "-vpc" } else { "" };
        return Some(format!("{name}{suffix}.aliyuncs.com"));
    }
    if endpoints.network == Network::Vpc {
        return Some(format!("{name}-vpc.{region}.aliyuncs.com"));
    }
    let exception = EXCEPTIONS.iter().find(|(of, at, _)| *of == product && *at == region);
    Some(exception.map_or_else(|| format!("{name}.{region}.aliyuncs.com"), |(_, _, host)| (*host).to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoints(in_vpc: bool) -> Endpoints {
        Endpoints { network: if in_vpc { Network::Vpc } else { Network::Public }, ..Endpoints::default() }
    }

    #[test]
    fn hosts_inside_and_outside_of_a_vpc_follow_the_published_tables() {
        let cases = [
            (false, CloudProduct::Ecs, "cn-shanghai", "https://ecs.cn-shanghai.aliyuncs.com/"),
            (false, CloudProduct::Ecs, "cn-hangzhou", "https://ecs.cn-hangzhou.aliyuncs.com/"),
            (false, CloudProduct::Ecs, "cn-shenzhen-finance-1", "https://ecs-cn-hangzhou.aliyuncs.com/"),
            (false, CloudProduct::Slb, "cn-hangzhou", "https://slb.aliyuncs.com/"),
            (false, CloudProduct::Slb, "cn-chengdu", "https://slb.cn-chengdu.aliyuncs.com/"),
            (false, CloudProduct::Vpc, "cn-hangzhou", "https://vpc.cn-hangzhou.aliyuncs.com/"),
            (false, CloudProduct::Sts, "eu-central-1", "https://sts.eu-central-1.aliyuncs.com/"),
            (false, CloudProduct::Sts, "cn-hangzhou-finance", "https://sts.aliyuncs.com/"),
            (false, CloudProduct::Nlb, "cn-hangzhou", "https://nlb.cn-hangzhou.aliyuncs.com/"),
            (true, CloudProduct::Nlb, "cn-hangzhou", "https://nlb-vpc.cn-hangzhou.aliyuncs.com/"),
            (false, CloudProduct::Pvtz, "cn-hangzhou", "https://pvtz.aliyuncs.com/"),
            (true, CloudProduct::Pvtz, "eu-central-1", "https://pvtz-vpc.aliyuncs.com/"),
            (true, CloudProduct::Slb, "cn-hangzhou", "https://slb-vpc.cn-hangzhou.aliyuncs.com/"),
            (true, CloudProduct::Ecs, "cn-hangzhou-finance", "https://ecs-vpc.cn-hangzhou-finance.aliyuncs.com/"),
            (true, CloudProduct::Vpc, "cn-shanghai", "https://vpc-vpc.cn-shanghai.aliyuncs.com/"),
        ];
        for (in_vpc, product, region, expected) in cases {
            assert_eq!(url(&endpoints(in_vpc), product, region).as_deref(), Some(expected));
        }
    }

    #[test]
    fn overrides_win_and_scheme_follows_the_configuration() {
        let mut endpoints = endpoints(true);
        endpoints.scheme = Scheme::Http;
        endpoints.slb = Some("127.0.0.1:8080".into());
        assert_eq!(url(&endpoints, CloudProduct::Slb, "").as_deref(), Some("http://127.0.0.1:8080/"));
        assert_eq!(url(&endpoints, CloudProduct::Ecs, "x").as_deref(), Some("http://ecs-vpc.x.aliyuncs.com/"));
    }

    #[test]
    fn a_region_cannot_lead_to_another_host() {
        for region in ["", "evil.example.com/", "cn hangzhou", "a@b", "cn-hangzhou#"] {
            assert_eq!(url(&endpoints(false), CloudProduct::Ecs, region), None, "{region:?}");
        }
    }
}
