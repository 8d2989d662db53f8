output "instance_profile" {
  description = "Instance profile for the instance that runs the agent."
  value       = aws_iam_instance_profile.elastio.name
}

output "role" {
  description = "Role of the agent."
  value       = aws_iam_role.elastio.name
}

output "volume_id" {
  description = "Backing volume. On the machine its disk has this id without the hyphen as its serial."
  value       = aws_ebs_volume.backing.id
}
