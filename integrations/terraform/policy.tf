# The policy of docs/reference/iam-policy.json, with the caps as variables. &{...} is how this data source writes ${...}.

data "aws_iam_policy_document" "elastio" {
  statement {
    sid = "Look"

    actions = [
      "ec2:DescribeInstanceTypes",
      "ec2:DescribeVolumes",
      "ec2:GetEbsDefaultKmsKeyId",
      "ec2:GetEbsEncryptionByDefault",
    ]

    resources = ["*"]
  }

  statement {
    sid       = "BuyOwnVolumesUpToACap"
    actions   = ["ec2:CreateVolume"]
    resources = ["arn:${data.aws_partition.current.partition}:ec2:*:*:volume/*"]

    condition {
      test     = "StringEquals"
      variable = "aws:RequestTag/elastio:owner"
      values   = ["&{ec2:SourceInstanceARN}"]
    }

    condition {
      test     = "StringEquals"
      variable = "ec2:VolumeType"
      values   = ["gp3"]
    }

    condition {
      test     = "NumericLessThanEquals"
      variable = "ec2:VolumeSize"
      values   = [var.most_cache_gib]
    }

    condition {
      test     = "NumericLessThanEquals"
      variable = "ec2:VolumeIops"
      values   = [var.most_cache_iops]
    }

    condition {
      test     = "NumericLessThanEquals"
      variable = "ec2:VolumeThroughput"
      values   = [var.most_cache_mib_s]
    }
  }

  statement {
    sid       = "TagOnlyWhileBuying"
    actions   = ["ec2:CreateTags"]
    resources = ["arn:${data.aws_partition.current.partition}:ec2:*:*:volume/*"]

    condition {
      test     = "StringEquals"
      variable = "ec2:CreateAction"
      values   = ["CreateVolume"]
    }
  }

  statement {
    sid       = "MarkOwnVolumes"
    actions   = ["ec2:CreateTags"]
    resources = ["arn:${data.aws_partition.current.partition}:ec2:*:*:volume/*"]

    condition {
      test     = "StringEquals"
      variable = "aws:ResourceTag/elastio:owner"
      values   = ["&{ec2:SourceInstanceARN}"]
    }

    condition {
      test     = "StringEquals"
      variable = "aws:RequestTag/elastio:state"
      values   = ["dirty", "clean"]
    }

    condition {
      test     = "ForAllValues:StringEquals"
      variable = "aws:TagKeys"
      values   = ["elastio:state"]
    }
  }

  statement {
    sid       = "HandleOwnVolumes"
    actions   = ["ec2:AttachVolume", "ec2:DetachVolume", "ec2:DeleteVolume"]
    resources = ["arn:${data.aws_partition.current.partition}:ec2:*:*:volume/*"]

    condition {
      test     = "StringEquals"
      variable = "aws:ResourceTag/elastio:owner"
      values   = ["&{ec2:SourceInstanceARN}"]
    }
  }

  statement {
    sid       = "NeverTakeAwayWhatMayHoldData"
    effect    = "Deny"
    actions   = ["ec2:DetachVolume", "ec2:DeleteVolume"]
    resources = ["arn:${data.aws_partition.current.partition}:ec2:*:*:volume/*"]

    condition {
      test     = "StringEquals"
      variable = "aws:ResourceTag/elastio:state"
      values   = ["dirty"]
    }
  }

  statement {
    sid       = "OnlyAtThisInstance"
    actions   = ["ec2:AttachVolume", "ec2:DetachVolume"]
    resources = ["arn:${data.aws_partition.current.partition}:ec2:*:*:instance/*"]

    condition {
      test     = "ArnEquals"
      variable = "ec2:SourceInstanceARN"
      values   = ["arn:${data.aws_partition.current.partition}:ec2:*:*:instance/&{ec2:InstanceID}"]
    }
  }
}
