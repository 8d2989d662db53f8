# The role with its policy, the backing volume, and its attachment. Cache volumes are not Terraform's: the agent buys and
# deletes them, and tags them with the ARN of the instance as elastio:owner.

data "aws_partition" "current" {}

data "aws_iam_policy_document" "assume" {
  statement {
    actions = ["sts:AssumeRole"]

    principals {
      type        = "Service"
      identifiers = ["ec2.amazonaws.com"]
    }
  }
}

resource "aws_iam_role" "elastio" {
  name               = var.name
  assume_role_policy = data.aws_iam_policy_document.assume.json
  tags               = var.tags
}

resource "aws_iam_instance_profile" "elastio" {
  name = var.name
  role = aws_iam_role.elastio.name
  tags = var.tags
}

resource "aws_iam_role_policy" "elastio" {
  name   = var.name
  role   = aws_iam_role.elastio.id
  policy = data.aws_iam_policy_document.elastio.json
}

resource "aws_ebs_volume" "backing" {
  availability_zone = var.availability_zone
  size              = var.size_gib
  type              = var.volume_type
  encrypted         = true
  tags              = merge(var.tags, { Name = var.name })

  lifecycle {
    prevent_destroy = true
  }
}

resource "aws_volume_attachment" "backing" {
  device_name = var.device_name
  instance_id = var.instance_id
  volume_id   = aws_ebs_volume.backing.id

  # A detach while the cache is dirty leaves a device that misses its last writes.
  stop_instance_before_detaching = true
}
