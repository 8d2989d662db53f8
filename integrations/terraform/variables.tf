variable "name" {
  description = "Name of the role, the instance profile and the volume."
  type        = string
  default     = "elastio"
}

variable "instance_id" {
  description = "Instance that the backing volume is attached to. Its instance profile has to be the output of this module."
  type        = string
}

variable "availability_zone" {
  description = "Availability zone of the instance."
  type        = string
}

variable "size_gib" {
  description = "Size of the backing volume in GiB."
  type        = number
  default     = 200
}

variable "volume_type" {
  description = "Type of the backing volume: gp3, st1 or sc1."
  type        = string
  default     = "gp3"
}

variable "device_name" {
  description = "Device name of the attachment. On Nitro instances it is only a label."
  type        = string
  default     = "/dev/sdf"
}

variable "most_cache_gib" {
  description = "Largest cache volume that the agent may buy, in GiB."
  type        = number
  default     = 1024
}

variable "most_cache_iops" {
  description = "Most IOPS of a cache volume."
  type        = number
  default     = 8000
}

variable "most_cache_mib_s" {
  description = "Highest throughput of a cache volume in MiB/s."
  type        = number
  default     = 2000
}

variable "tags" {
  description = "Tags of what this module makes."
  type        = map(string)
  default     = {}
}
